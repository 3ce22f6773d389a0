// Thunderbird's appeals and surveys come in tabs of their own, in front of what a task has opened.
pref("mail.inappnotifications.enabled", false);
pref("app.donation.eoy.version", 0);
pref("app.donation.eoy.version.viewed", 999);
