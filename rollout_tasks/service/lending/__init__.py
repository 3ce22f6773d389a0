"""Desktops lent over HTTP to programs that know no Redis. Begin reading at `application`; the sessions themselves are next door."""
