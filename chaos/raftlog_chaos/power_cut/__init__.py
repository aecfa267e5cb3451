"""Power cuts for real: a whole cluster in a guest kernel on a disk of its own, and the guest killed at any moment.

The guest is User-mode Linux: a kernel that runs as a plain process, without root and without KVM. SIGKILL of its
process group takes what it had not written to its disk, as a power cut does, from all nodes at once. `kernel` boots
and kills guests, and `inside` is the program that runs in them. `words` are what it says over a serial line, and `book`
is what the host knows by then. `campaign` cuts, boots and judges again and again.

Ordering law: a client's word leaves the guest before the client goes on. So what the book calls acknowledged was
acknowledged, and what it never heard of was never sent.
"""
