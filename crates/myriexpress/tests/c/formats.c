/* Public MX programs print match values with PRIx64 and include no other header for it. */
#include "myriexpress.h"

int main(void)
{
    uint64_t value = UINT64_C(0x123456789abcdef0);
    char text[17] = PRIx64;
    return text[0] == '\0' || (value >> 60) != 1;
}
