"""Tables and figures of papers, computed anew in closed form: each number beside the printed one."""
