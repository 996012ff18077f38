"""What survives a server's death, as pure logic: clock, data leases, rounds, journal, parts of snapshots."""
