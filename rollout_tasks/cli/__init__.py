"""What commands show and read, apart from what they do."""
