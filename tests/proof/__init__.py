"""All parts of the proof, and the record of what they found."""
