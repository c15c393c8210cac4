"""What our own clients of a bus share: connection strings and shared access signatures. It knows no bus from inside."""
