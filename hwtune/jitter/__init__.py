"""How quiet each CPU is, and what disturbs it.

Data flows one way: plan -> one native loop a CPU, with the kernel's trace beside it -> analysis -> report.
Nothing here is imported by doctor.
"""
