"""What results amount to: metrics, intervals over worlds, tables."""
