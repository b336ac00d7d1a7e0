#include <features.h>
#include <uv.h>
