"""Training loops. `base` runs any of them; each kind only says what one step is and which parts it has."""
