"""Printed tables and figures of papers, recomputed in closed form: each number beside the printed one."""
