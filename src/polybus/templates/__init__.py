"""Resource Manager templates: what their parameters, variables and expressions ask for. No bus and no files in here."""
