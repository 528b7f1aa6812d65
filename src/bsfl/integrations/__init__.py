"""bsfl inside other systems, one package each."""
