"""Where a finished night is told to: each sink takes a Result and sends it, or raises HttpError."""
