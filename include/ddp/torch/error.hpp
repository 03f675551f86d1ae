// error.hpp - what calls of ddp/torch.hpp throw.
#ifndef DDP_TORCH_ERROR_HPP
#define DDP_TORCH_ERROR_HPP

#include <ddp/error.h>

#include <atomic>
#include <stdexcept>
#include <string>

namespace ddp
{

// A call of libddp failed: what() has its text, status() the ddp_status.
class Error : public std::runtime_error
{
  public:
    Error(int status, const std::string &text) : std::runtime_error(text), status_(status) {}
    int status() const noexcept { return status_; }

  private:
    int status_;
};

// The members of the job changed. It is not an Error, and not the program's to handle: it leaves
// the function that ddp::run() calls, which is called again. A `catch (const std::exception &)`
// around a step has to let it through; if the function returns after it caught one, it is also
// called again:
//
//     catch (const ddp::Retry &) { throw; }
class Retry : public std::runtime_error
{
  public:
    using std::runtime_error::runtime_error;
};

namespace detail
{
// Whether a Retry was thrown in this generation.
inline std::atomic<bool> &is_retry_due()
{
    static std::atomic<bool> is_due{false};
    return is_due;
}
} // namespace detail

// Throws Retry or Error unless `status` is DDP_OK. On the thread that made the call: libddp keeps
// texts per thread.
inline void check(int status)
{
    if (status == DDP_OK)
        return;
    const std::string text = ddp_last_error();
    if (status == DDP_RETRY) {
        detail::is_retry_due() = true;
        throw Retry(text);
    }
    throw Error(status, text);
}

} // namespace ddp
#endif
