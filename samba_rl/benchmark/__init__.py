"""The paper's tables: a grid of learners, systems and seeds, its cells run side by side, and what they come to."""
