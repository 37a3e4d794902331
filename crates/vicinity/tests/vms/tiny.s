# Firmware that drives a virtio NIC (virtio 1.3, 4.1.4.8: the legacy interface) and nothing else:
# it starts the NIC within a millisecond of a reset and then sends to itself, frame after frame.
#
# It writes to memory: at 0x7000 how often it has started its NIC, and at 0x7004 how many frames since
# the present start have come back unchanged.

        .code16
        .equ    BOOTS, 0x7000
        .equ    FRAMES, 0x7004
        .equ    PORT, 0xc000            # where to place the NIC's registers

# Write a register of the PCI device in slot 2, the first free slot.
        .macro  pci register, value
        movl    $(0x80001000 + \register), %eax
        movw    $0xcf8, %dx
        outl    %eax, %dx
        movl    $\value, %eax
        movw    $0xcfc, %dx
        outl    %eax, %dx
        .endm

# Write a register of the NIC.
        .macro  nic register, width, value
        .ifc    \width, b
        movb    $\value, %al
        movw    $(PORT + \register), %dx
        outb    %al, %dx
        .endif
        .ifc    \width, w
        movw    $\value, %ax
        movw    $(PORT + \register), %dx
        outw    %ax, %dx
        .endif
        .ifc    \width, l
        movl    $\value, %eax
        movw    $(PORT + \register), %dx
        outl    %eax, %dx
        .endif
        .endm

# Clear the ring that begins at this segment (1024 entries: descriptors at 0, available ring at
# 0x4000, used ring at 0x5000) and give it to the NIC.
        .macro  ring number, segment
        movw    $\segment, %ax
        movw    %ax, %es
        xorw    %di, %di
        xorw    %ax, %ax
        movw    $(0x8000 / 2), %cx
        rep stosw
        nic     14, w, \number
        nic     8, l, (\segment / 0x100)
        .endm

        .globl  start
start:  cli
        cld
        xorw    %ax, %ax
        movw    %ax, %ds
        movl    $0, FRAMES

        pci     0x10, PORT
        pci     0x04, 5                 # ports and bus mastering
        nic     18, b, 0                # reset
        nic     18, b, 3                # ACKNOWLEDGE and DRIVER
        nic     4, l, 0                 # accept no features

        ring    0, 0x1000
        movl    $0x40000, %es:0         # one buffer to receive into
        movl    $0x800, %es:8
        movl    $2, %es:12
        movw    $1, %es:0x4002

        movw    $0x3000, %ax            # the frame: ten bytes of network header, then
        movw    %ax, %es
        movl    $0, %es:0
        movl    $0, %es:4
        movl    $0x54520000, %es:8      # to 52:54:00:00:98:04
        movl    $0x04980000, %es:12
        movl    $0x00005452, %es:16     # from the same
        movl    $0xb5880498, %es:20     # the experimental EtherType

        ring    1, 0x2000
        movl    $0x30000, %es:0
        movl    $70, %es:8

        nic     18, b, 7                # go
        incl    BOOTS

        xorw    %bx, %bx
send:   incw    %bx
        movw    %bx, %es:0x4002
        nic     16, w, 1
sent:   cmpw    %bx, %es:0x5002
        jne     sent
        incl    FRAMES
        jmp     send

        .org    0xfff0
        jmp     start
        .org    0x10000
