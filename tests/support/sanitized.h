/* sanitized.h - whether this is a build with the address sanitizer, by gcc or clang. */
#ifndef DDP_TESTS_SUPPORT_SANITIZED_H
#define DDP_TESTS_SUPPORT_SANITIZED_H

#ifdef __SANITIZE_ADDRESS__
#define SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define SANITIZED 1
#endif
#endif

#ifndef SANITIZED
#define SANITIZED 0
#endif

#endif
