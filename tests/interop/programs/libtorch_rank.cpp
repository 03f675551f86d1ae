// libtorch_rank.cpp - ranks of a libtorch program, for libtorch_same.py. The only one of its
// programs: torch's headers take a minute to compile.
//
//     libtorch_rank train DIRECTORY [NAME=VALUE...]   trains a conv net, as libtorch_same.py does
//     libtorch_rank kinds DIRECTORY                   tensors of all kinds, and calls of all kinds
//     libtorch_rank bench mlp|conv STEPS              times steps, for bench/libtorch.py
//     libtorch_rank digits|gpt [ARGUMENT...]          main() of examples/libtorch
//     libtorch_rank two [die]                         two models; rank 1 dies between their steps
//     libtorch_rank inside | optimizer | throw | swallow | move
//     libtorch_rank race header|libddp                for ThreadSanitizer, which has to find it
//
// train writes DIRECTORY/losses.R, the bits of each loss, DIRECTORY/times.R, when a rank was killed
// and when this one was past the steps of a recovery, and at its end DIRECTORY/state.R, the bytes
// of parameters, buffers and momentum, which a test compares. DIRECTORY/begun.PID is there once a
// process is about to join the job, or to wait as a standby.
#include <ddp/torch.hpp>

#include <ATen/autocast_mode.h>
#include <ATen/record_function.h>
#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <thread>
#include <unistd.h>

namespace nn = torch::nn;
namespace optim = torch::optim;
using torch::Tensor;

namespace digits
{
#include "../../../examples/libtorch/digits.cpp"
}
namespace gpt
{
#include "../../../examples/libtorch/gpt.cpp"
}

#ifdef __SANITIZE_THREAD__
// The runtime of gcc 12 does not know this function: for it, libddp would unlock what it has not
// locked. It knows the one with the other clock.
extern "C" int pthread_mutex_clocklock(pthread_mutex_t *mutex, clockid_t clock,
                                       const struct timespec *until) noexcept
{
    timespec now, end;
    clock_gettime(clock, &now);
    clock_gettime(CLOCK_REALTIME, &end);
    const int64_t ns = end.tv_nsec + until->tv_nsec - now.tv_nsec + 1000000000;
    end.tv_sec += until->tv_sec - now.tv_sec - 1 + ns / 1000000000;
    end.tv_nsec = ns % 1000000000;
    return pthread_mutex_timedlock(mutex, &end);
}
#endif

static double now_ms() // the same clock in all processes
{
    using namespace std::chrono;
    return duration<double, std::milli>(steady_clock::now().time_since_epoch()).count();
}

// --- train ---------------------------------------------------------------------------------------

struct NetImpl : nn::Module {
    nn::Conv2d conv1{nullptr}, conv2{nullptr};
    nn::BatchNorm2d bn{nullptr};
    nn::Linear fc1{nullptr}, fc2{nullptr}, aux{nullptr};
    NetImpl()
    {
        conv1 = register_module("conv1", nn::Conv2d(1, 8, 3));
        conv2 = register_module("conv2", nn::Conv2d(8, 16, 3));
        bn = register_module("bn", nn::BatchNorm2d(16));
        fc1 = register_module("fc1", nn::Linear(2304, 32));
        fc2 = register_module("fc2", nn::Linear(32, 10));
        aux = register_module("aux", nn::Linear(32, 10));
    }
    Tensor forward(Tensor x, bool with_aux)
    {
        x = torch::relu(conv1(x));
        x = torch::relu(bn(conv2(x)));
        x = torch::max_pool2d(x, 2).flatten(1);
        x = torch::relu(fc1(x));
        return torch::log_softmax(with_aux ? fc2(x) + aux(x) : fc2(x), 1);
    }
};
TORCH_MODULE(Net);

struct Arguments {
    std::map<std::string, std::string> values;
    Arguments(int argc, char **argv)
    {
        for (int i = 3; i < argc; i++) {
            const std::string word = argv[i];
            values[word.substr(0, word.find('='))] = word.substr(word.find('=') + 1);
        }
    }
    long get(const char *name, long otherwise) const
    {
        const auto at = values.find(name);
        return at != values.end() ? std::stol(at->second) : otherwise;
    }
    std::string text(const char *name) const
    {
        const auto at = values.find(name);
        return at != values.end() ? at->second : "";
    }
};

static void append_line(const std::string &path, const std::string &line)
{
    std::ofstream(path, std::ios::app) << line + "\n";
}

static std::string bits_of(float x)
{
    uint32_t bits;
    char text[9];
    std::memcpy(&bits, &x, sizeof bits);
    snprintf(text, sizeof text, "%08x", bits);
    return text;
}

static void write_bytes(std::ofstream &file, const Tensor &tensor)
{
    const Tensor t = tensor.detach().cpu().contiguous();
    file.write(static_cast<const char *>(t.data_ptr()), std::streamsize(t.nbytes()));
}

static void write_state(const std::string &path, Net &net, optim::Optimizer &optimizer)
{
    std::ofstream file(path, std::ios::binary | std::ios::trunc);
    for (const auto &p : net->parameters())
        write_bytes(file, p);
    for (const auto &b : net->buffers())
        write_bytes(file, b);
    for (const auto &p : net->parameters()) {
        const auto found = optimizer.state().find(p.unsafeGetTensorImpl());
        if (found == optimizer.state().end())
            continue;
        if (const auto *sgd = dynamic_cast<optim::SGDParamState *>(found->second.get()))
            write_bytes(file, sgd->momentum_buffer());
        if (const auto *adam = dynamic_cast<optim::AdamParamState *>(found->second.get())) {
            write_bytes(file, adam->exp_avg());
            write_bytes(file, adam->exp_avg_sq());
        }
    }
}

static std::unique_ptr<optim::Optimizer> make_optimizer(Net &net, bool is_adam)
{
    if (is_adam)
        return std::make_unique<optim::Adam>(net->parameters(), optim::AdamOptions(1e-3));
    return std::make_unique<optim::SGD>(net->parameters(), optim::SGDOptions(0.01).momentum(0.9));
}

struct Training {
    std::string folder;
    Arguments arguments;
    Tensor images, labels;
    Net &net;
    optim::Optimizer &optimizer;
    at::Device device = at::kCPU;

    bool dies(const ddp::Group &world, const char *where) const
    {
        return arguments.text("kill_in") == where &&
               world.rank() == arguments.get("kill_rank", 1) && world.generation() == 0 &&
               long(world.completed_steps()) == arguments.get("kill_at", -1);
    }

    void note(const ddp::Group &world, const char *what) const
    {
        append_line(folder + "/times." + std::to_string(world.rank()),
                    std::string(what) + " " + std::to_string(now_ms()));
    }
    // As many processes as begun=N says have begun: with ranks that all live, one is a standby.
    void await_standby() const
    {
        const auto has_begun = [](const std::filesystem::directory_entry &file) {
            return file.path().filename().string().rfind("begun.", 0) == 0;
        };
        for (const double end = now_ms() + 120000; now_ms() < end; usleep(10000)) {
            std::filesystem::directory_iterator files(folder);
            if (std::count_if(std::filesystem::begin(files), std::filesystem::end(files),
                              has_begun) >= arguments.get("begun", 0))
                return;
        }
    }
    void die(const ddp::Group &world) const
    {
        await_standby();
        note(world, "killed");
        raise(SIGKILL);
    }

    void move(const ddp::Group &world)
    {
        device = world.device();
        if (device.is_cpu())
            throw std::runtime_error("the job has no GPU");
        net->to(device);
    }

    // One step; false at the end of the epoch.
    bool step(const ddp::Group &world, ddp::DistributedDataParallel<NetImpl> &model,
              ddp::DistributedSampler &sampler)
    {
        const long n_passes = arguments.get("accumulate", 1), aux = arguments.get("aux", 2);
        Tensor total = torch::zeros({}, device);
        optimizer.zero_grad();
        for (long pass = 0; pass < n_passes; pass++) {
            const Tensor index = sampler.next(size_t(arguments.get("batch", 16)));
            if (index.numel() == 0)
                return false;
            const Tensor x = images.index_select(0, index).to(device),
                         y = labels.index_select(0, index).to(device);
            const bool with_aux = aux == 2 || (aux == 1 && world.rank() % 2 == 1);
            Tensor loss = torch::nll_loss(model(x, with_aux), y) / double(n_passes);
            total += loss.detach();
            if (dies(world, "forward"))
                die(world);
            if (dies(world, "backward"))
                net->conv2->weight.register_hook([&](Tensor g) {
                    die(world);
                    return g;
                });
            std::optional<ddp::detail::Averager::NoSync> guard;
            if (pass + 1 < n_passes)
                guard.emplace(model.no_sync());
            loss.backward();
        }
        if (dies(world, "optimizer"))
            die(world);
        optimizer.step();
        append_line(folder + "/losses." + std::to_string(world.rank()),
                    bits_of(total.item<float>()));
        return true;
    }

    void operator()(const ddp::Group &world)
    {
        ddp::Options options;
        options.find_unused_parameters = arguments.get("unused", 0) != 0;
        bool recovers = world.generation() > 0;
        if (recovers)
            note(world, "called");
        if (arguments.get("gpu", 0) != 0)
            move(world);
        ddp::DistributedDataParallel model(world, net, optimizer, options);
        if (recovers)
            note(world, "model");
        ddp::DistributedSampler sampler(world, images.size(0), {true, 3, false});
        std::optional<ddp::Checkpoint> checkpoint;
        const long save_at = arguments.get("save_at", -1), n_steps = arguments.get("steps", 1000);
        if (!arguments.text("checkpoint").empty())
            checkpoint.emplace(world, arguments.text("checkpoint"));
        long done = long(world.completed_steps());
        if (checkpoint.has_value() && done == 0 && checkpoint->latest() >= 0) {
            checkpoint->load(checkpoint->latest(), *net, optimizer, sampler);
            done = 0;
        }
        while (done < n_steps && sampler.next_epoch(arguments.get("epochs", 1)))
            while (done < n_steps && step(world, model, sampler)) {
                if (std::exchange(recovers, false))
                    note(world, "step");
                if (++done == save_at)
                    checkpoint->save(done, *net, optimizer, sampler);
            }
        const auto s = model.stats();
        printf("rank %d of %d ends after %ld steps: %zu buckets, %zu in place, overlapped %zu\n",
               world.rank(), world.world_size(), done, s.n_buckets, s.n_in_place, s.n_overlapped);
        write_state(folder + "/state." + std::to_string(world.rank()), net, optimizer);
    }
};

static void train(int argc, char **argv)
{
    const Arguments arguments(argc, argv);
    torch::manual_seed(1);
    const Tensor images = torch::randn({arguments.get("n", 256), 1, 28, 28});
    const Tensor labels = torch::randint(10, {arguments.get("n", 256)}, torch::kLong);
    torch::manual_seed(2);
    Net net;
    auto optimizer = make_optimizer(net, arguments.get("adam", 0) != 0);
    append_line(std::string(argv[2]) + "/begun." + std::to_string(getpid()), "");
    ddp::run(Training{argv[2], arguments, images, labels, net, *optimizer});
}

// --- bench ---------------------------------------------------------------------------------------

// 67 MB of gradients, or a conv net of 1.2 million parameters.
static nn::Sequential make_network(bool is_conv)
{
    if (!is_conv)
        return nn::Sequential(nn::Linear(2048, 4096), nn::ReLU(), nn::Linear(4096, 2048));
    return nn::Sequential(nn::Conv2d(1, 32, 3), nn::ReLU(), nn::Conv2d(32, 64, 3),
                          nn::BatchNorm2d(64), nn::ReLU(), nn::MaxPool2d(2), nn::Flatten(),
                          nn::Linear(9216, 128), nn::ReLU(), nn::Linear(128, 10));
}

// What libtorch copies while one lives.
class Copies
{
  public:
    Copies() : handle_(at::addGlobalCallback(at::RecordFunctionCallback(count))) { n = 0; }
    ~Copies() { at::removeCallback(handle_); }
    inline static std::atomic<size_t> n;

  private:
    static std::unique_ptr<at::ObserverContext> count(const at::RecordFunction &f)
    {
        n += std::strcmp(f.name(), "aten::copy_") == 0;
        return nullptr;
    }
    at::CallbackHandle handle_;
};

template <class Step> static size_t count_copies(Step step)
{
    Copies copies;
    step();
    return Copies::n;
}

static void bench(bool is_conv, size_t n_steps)
{
    torch::manual_seed(1);
    nn::Sequential net = make_network(is_conv);
    optim::SGD optimizer(net->parameters(), 0.01);
    const Tensor x = is_conv ? torch::randn({64, 1, 28, 28}) : torch::randn({16, 2048});
    ddp::run([&](ddp::Group world) {
        ddp::DistributedDataParallel model(world, net, optimizer);
        std::vector<double> times;
        for (size_t i = 0; i < n_steps + 5; i++) {
            const double began = now_ms();
            optimizer.zero_grad();
            model(x).square().mean().backward();
            optimizer.step();
            if (i >= 5)
                times.push_back(now_ms() - began);
        }
        std::sort(times.begin(), times.end());
        const auto pass = [&](auto &network) {
            optimizer.zero_grad();
            network.forward(x).square().mean().backward();
        };
        nn::Sequential alone = make_network(is_conv);
        const size_t n = count_copies([&] { pass(*net); }),
                     n_alone = count_copies([&] { pass(*alone); });
        size_t bytes = 0;
        for (const auto &p : net->parameters())
            bytes += p.nbytes();
        const auto s = model.stats();
        if (world.rank() == 0)
            printf("median %.3f ms; %zu gradients of %.1f MB, %zu copies; %zu of %zu "
                   "buckets in place, %zu overlapped\n",
                   times[times.size() / 2], net->parameters().size(), double(bytes) / 1e6,
                   n - n_alone, s.n_in_place, s.n_buckets, s.n_overlapped);
    });
}

// --- kinds ---------------------------------------------------------------------------------------

static int n_bad = 0;
#define EXPECT(g, x)                                                                               \
    do {                                                                                           \
        if (!(x)) {                                                                                \
            n_bad++;                                                                               \
            fprintf(stderr, "rank %d: line %d: %s\n", (g).rank(), __LINE__, #x);                   \
        }                                                                                          \
    } while (0)

static bool is_same(const ddp::Group &g, const Tensor &t) // on all ranks
{
    Tensor least = t.detach().to(torch::kDouble).contiguous().clone(), most = least.clone();
    g.all_reduce(least, DDP_MIN);
    g.all_reduce(most, DDP_MAX);
    return least.equal(most);
}

static void use_types(const ddp::Group &g)
{
    for (auto type : {torch::kBFloat16, torch::kHalf, torch::kDouble, torch::kFloat}) {
        nn::Linear layer(16, 4);
        layer->to(type);
        ddp::DistributedDataParallel model(g, layer);
        optim::SGD optimizer(layer->parameters(), 0.1);
        for (int i = 0; i < 3; i++) {
            optimizer.zero_grad();
            model(torch::randn({5, 16}).to(type)).sum().backward();
            optimizer.step();
        }
        EXPECT(g, layer->weight.grad().scalar_type() == type);
        EXPECT(g, is_same(g, layer->weight) && is_same(g, layer->weight.grad()));
    }
}

static void use_autocast(const ddp::Group &g)
{
    nn::Linear layer(16, 4);
    ddp::DistributedDataParallel model(g, layer);
    at::autocast::set_autocast_enabled(at::kCPU, true);
    const Tensor y = model(torch::randn({5, 16}));
    at::autocast::clear_cache();
    at::autocast::set_autocast_enabled(at::kCPU, false);
    EXPECT(g, y.scalar_type() == torch::kBFloat16);
    y.to(torch::kFloat).sum().backward();
    EXPECT(g,
           layer->weight.grad().scalar_type() == torch::kFloat && is_same(g, layer->weight.grad()));
}

static void use_layouts(const ddp::Group &g)
{
    const auto last = at::MemoryFormat::ChannelsLast;
    nn::Conv2d conv(nn::Conv2dOptions(3, 8, 3));
    conv->weight.set_data(conv->weight.detach().contiguous(last));
    {
        ddp::DistributedDataParallel model(g, conv);
        model(torch::randn({2, 3, 8, 8}).contiguous(last)).sum().backward();
        EXPECT(g, conv->weight.grad().strides() == conv->weight.strides());
        EXPECT(g, is_same(g, conv->weight.grad()));
    }
    if (g.rank() == 1)
        conv->weight.set_data(conv->weight.detach().contiguous());
    try {
        ddp::DistributedDataParallel model(g, conv);
        EXPECT(g, g.world_size() == 1);
    } catch (const ddp::Error &e) {
        EXPECT(g, e.status() == DDP_EMISMATCH && strstr(e.what(), "strides [27, 1, 9, 3]"));
    }
}

struct Odd : nn::Module { // a tied parameter, a frozen one, a buffer of integers
    nn::Linear a{nullptr};
    Tensor tied, frozen, count;
    Odd()
    {
        a = register_module("a", nn::Linear(8, 8));
        tied = register_parameter("tied", a->weight);
        frozen = register_parameter("frozen", torch::randn({4}), false);
        count = register_buffer("count", torch::randint(1000, {2}, torch::kLong));
    }
    Tensor forward(const Tensor &x) { return a(x) + torch::linear(x, tied); }
};

static void use_odd_modules(const ddp::Group &g)
{
    Odd odd;
    ddp::DistributedDataParallel model(g, odd);
    EXPECT(g, is_same(g, odd.frozen) && is_same(g, odd.count) && is_same(g, odd.a->weight));
    model(torch::randn({2, 8})).sum().backward();
    EXPECT(g, is_same(g, odd.a->weight.grad()) && !odd.frozen.grad().defined());
    EXPECT(g, model.stats().n_buckets == model.stats().n_in_place);

    nn::Embedding words(nn::EmbeddingOptions(100, 8).sparse(true));
    ddp::DistributedDataParallel sparse(g, words);
    for (int i = 0; i < 2; i++) {
        words->zero_grad();
        sparse(torch::randint(100, {5}, torch::kLong)).sum().backward();
        EXPECT(g, !words->weight.grad().is_sparse() && is_same(g, words->weight.grad()));
    }
    struct Gaps : nn::Module {
        Gaps() { register_parameter("w", torch::randn({4, 8}).slice(1, 0, 4)); }
        Tensor forward(const Tensor &x) { return x; }
    } gaps;
    try {
        ddp::DistributedDataParallel refused(g, gaps);
        EXPECT(g, false);
    } catch (const ddp::Error &e) {
        EXPECT(g, e.status() == DDP_EUNSUPPORTED && strstr(e.what(), "w: the tensor"));
    }
}

static void use_threads(const ddp::Group &g)
{
    nn::Linear layer(16, 4);
    ddp::DistributedDataParallel model(g, layer);
    Tensor loss = model(torch::randn({5, 16})).sum();
    std::thread([&] { loss.backward(); }).join();
    EXPECT(g, is_same(g, layer->weight.grad()));
}

static void use_unused(const ddp::Group &g)
{
    nn::Linear used(4, 4), unused(4, 4);
    nn::Sequential both(used, unused);
    ddp::Options options;
    {
        ddp::DistributedDataParallel model(g, both);
        std::string text;
        try {
            used(torch::ones({1, 4})).sum().backward();
        } catch (const ddp::Error &e) {
            text = e.what();
        }
        EXPECT(g, text.find("find_unused_parameters") != std::string::npos &&
                      text.find("1.weight") != std::string::npos);
    }
    options.find_unused_parameters = true;
    ddp::DistributedDataParallel model(g, both, options);
    both->zero_grad();
    used(torch::ones({1, 4})).sum().backward();
    EXPECT(g, !unused->weight.grad().defined() && used->weight.grad().defined());
    EXPECT(g, model.is_used(used->weight) && !model.is_used(unused->weight));
    model.sync(); // a step that uses nothing
    EXPECT(g, !model.is_used(used->weight));
}

static void use_clipping_weights_and_join(const ddp::Group &g)
{
    nn::Linear layer(4, 1);
    ddp::Options options;
    options.weighted = true;
    ddp::DistributedDataParallel model(g, layer, options);
    optim::SGD optimizer(layer->parameters(), 0.1);
    for (int i = 0; i <= g.rank(); i++) { // rank r has r + 1 batches of r + 1 samples
        optimizer.zero_grad();
        model.weight(g.rank() + 1);
        torch::mse_loss(model(torch::ones({g.rank() + 1, 4})), torch::zeros({g.rank() + 1, 1}))
            .backward();
        const double norm = model.clip_grad_norm(0.5);
        Tensor now = torch::cat({layer->weight.grad().flatten(), layer->bias.grad()}).norm();
        EXPECT(g, std::abs(now.item<double>() - std::min(norm, 0.5)) < 1e-5);
        optimizer.step();
    }
    model.join();
    EXPECT(g, is_same(g, layer->weight));
}

static void normalize(const ddp::Group &g)
{
    torch::manual_seed(9);
    const Tensor whole = torch::randn({4 * g.world_size(), 3, 5, 5}, torch::kDouble);
    nn::BatchNorm2d plain(3);
    plain->to(torch::kDouble);
    ddp::SyncBatchNorm norm(nn::BatchNormOptions(3));
    norm->to(torch::kDouble);
    ddp::DistributedDataParallel model(g, norm);
    for (int i = 0; i < 2; i++) {
        Tensor x = whole.slice(0, 4 * g.rank(), 4 * g.rank() + 4).clone().requires_grad_(true);
        Tensor all = whole.clone().requires_grad_(true);
        norm->zero_grad();
        plain->zero_grad();
        (model(x).sin() * x.detach()).sum().backward();
        (plain(all).sin() * all.detach()).sum().backward();
        EXPECT(g, at::allclose(x.grad(), all.grad().slice(0, 4 * g.rank(), 4 * g.rank() + 4)));
        EXPECT(g, at::allclose(norm->weight.grad() * g.world_size(), plain->weight.grad()));
        EXPECT(g, at::allclose(norm->running_var, plain->running_var));
        EXPECT(g, norm->num_batches_tracked.item<int64_t>() == i + 1);
    }
    norm->eval();
    plain->eval();
    EXPECT(g, at::allclose(model(whole), plain(whole)));
    nn::BatchNorm2d other(3);
    EXPECT(g, ddp::convert_sync_batchnorm(other)->weight.data_ptr() == other->weight.data_ptr());
}

static std::string error_of(const std::function<void()> &call)
{
    try {
        call();
    } catch (const std::exception &e) {
        return e.what();
    }
    return "";
}

// Input that libddp would read as if it were another: of other types and shapes, or too late.
static void normalize_odd_input(const ddp::Group &g)
{
    ddp::SyncBatchNorm norm(nn::BatchNormOptions(3).momentum(0.0));
    nn::BatchNorm2d plain(nn::BatchNormOptions(3).momentum(0.0));
    ddp::DistributedDataParallel model(g, norm);
    Tensor x = torch::randn({4, 3, 5, 5}).to(torch::kBFloat16);
    g.broadcast(x);
    const Tensor y = model(x);
    EXPECT(g, y.scalar_type() == torch::kBFloat16 && at::allclose(y, plain(x), 0.05, 0.05));
    y.sum().backward();
    EXPECT(g, norm->weight.grad().scalar_type() == torch::kFloat);
    EXPECT(g, norm->running_mean.equal(torch::zeros({3})));
    EXPECT(g, error_of([&] {
                  model(torch::randn({4, 2}));
              }).find("3 channels, got 2") != std::string::npos);
    const Tensor first = model(torch::randn({4, 3})).square().sum();
    const Tensor second = model(torch::randn({4, 3})).square().sum();
    const std::string late = error_of([&] { first.backward(); });
    EXPECT(g, g.world_size() == 1 || late.find("another forward pass") != std::string::npos);
}

// A function whose input gets no gradient.
struct NoGradient : torch::autograd::Function<NoGradient> {
    static Tensor forward(torch::autograd::AutogradContext *, const Tensor &x, const Tensor &)
    {
        return x * 2;
    }
    static torch::autograd::variable_list backward(torch::autograd::AutogradContext *,
                                                   torch::autograd::variable_list grads)
    {
        return {grads[0] * 2, Tensor()};
    }
};

static void use_odd_gradients(const ddp::Group &g)
{
    nn::Linear a(4, 4), b(4, 4);
    nn::Sequential both(a, b);
    ddp::DistributedDataParallel model(g, both);
    for (int i = 0; i < 2; i++) {
        both->zero_grad();
        const Tensor y = NoGradient::apply(a(torch::ones({1, 4})), b->weight).sum() + b->bias.sum();
        (g.rank() == 0 ? y + b->weight.sum() : y).backward();
        EXPECT(g, is_same(g, a->weight.grad()));
        EXPECT(g, at::allclose(b->weight.grad(), torch::full({4, 4}, 1.0 / g.world_size())));
    }
    both->zero_grad();
    {
        auto outer = model.no_sync();
        {
            auto inner = model.no_sync();
        }
        both->forward(torch::full({1, 4}, double(g.rank() + 1))).sum().backward();
        EXPECT(g, model.stats().n_steps == 2);
    }
    both->forward(torch::full({1, 4}, double(g.rank() + 1))).sum().backward();
    EXPECT(g, model.stats().n_steps == 3 && is_same(g, a->weight.grad()));
}

static void use_data_loader(const ddp::Group &g)
{
    struct Numbers : torch::data::datasets::Dataset<Numbers, int64_t> {
        int64_t get(size_t i) override { return int64_t(i); }
        std::optional<size_t> size() const override { return 37; }
    };
    ddp::DistributedSampler sampler(g, 37), same(g, 37);
    auto loader = torch::data::make_data_loader(Numbers(), ddp::DataSampler(sampler),
                                                torch::data::DataLoaderOptions(4));
    while (sampler.next_epoch(2) && same.next_epoch(2))
        for (const auto &batch : *loader) {
            const Tensor index = same.next(4);
            EXPECT(g, index.equal(torch::tensor(batch, torch::kLong)));
        }
}

static std::string directory; // of this run

static void use_checkpoint(const ddp::Group &g) // which a thread writes
{
    nn::Linear layer(4, 4);
    optim::Adam optimizer(layer->parameters(), 0.1);
    ddp::DistributedDataParallel model(g, layer);
    ddp::DistributedSampler sampler(g, 16);
    ddp::Checkpoint checkpoint(g, directory, {2, true});
    for (int64_t step = 0; step < 4; step++) {
        optimizer.zero_grad();
        model(torch::ones({1, 4})).sum().backward();
        optimizer.step();
        checkpoint.save(step, *layer, optimizer, sampler);
    }
    checkpoint.wait();
    const Tensor saved = layer->weight.detach().clone();
    nn::init::zeros_(layer->weight);
    EXPECT(g, checkpoint.latest() == 3);
    checkpoint.load(3, *layer, optimizer, sampler);
    EXPECT(g, layer->weight.equal(saved));
}

static void use_group(const ddp::Group &g)
{
    Tensor t = torch::full({2, 3}, g.rank() + 1.0).t(); // not contiguous
    g.all_reduce(t);
    EXPECT(g, t.sum().item<double>() == 3.0 * g.world_size() * (g.world_size() + 1));
    t.fill_(g.rank());
    g.broadcast(t, g.world_size() - 1);
    EXPECT(g, t.max().item<double>() == g.world_size() - 1);
    EXPECT(g, g.all_gather(torch::tensor({g.rank()}, torch::kLong)).flatten()[-1].item<int64_t>() ==
                  g.world_size() - 1);
    EXPECT(g, g.mean(g.rank()) == (g.world_size() - 1) / 2.0);
    Tensor any = torch::tensor({true, false, g.rank() == 0}), all = any.clone();
    g.all_reduce(any);
    g.all_reduce(all, DDP_PROD);
    EXPECT(g, any.equal(torch::tensor({true, false, true})) && any.sum().item<int64_t>() == 2);
    EXPECT(g, all.equal(torch::tensor({true, false, g.world_size() == 1})));
    try {
        g.all_reduce(torch::zeros({2}, torch::kComplexFloat));
        EXPECT(g, false);
    } catch (const ddp::Error &e) {
        EXPECT(g, e.status() == DDP_EUNSUPPORTED);
    }
}

static void kinds(const ddp::Group &g)
{
    for (auto use : {use_group, use_types, use_autocast, use_layouts, use_odd_modules, use_threads,
                     use_unused, use_clipping_weights_and_join, normalize, normalize_odd_input,
                     use_odd_gradients, use_checkpoint, use_data_loader}) {
        torch::manual_seed(10 + g.rank()); // other values on each rank: rank 0's count
        use(g);
    }
    if (n_bad > 0)
        throw std::runtime_error(std::to_string(n_bad) + " expectations failed");
}

// --- two models ----------------------------------------------------------------------------------

// Their steps are counted together, and the first model has the state of both.
static void two(bool dies)
{
    torch::manual_seed(3);
    nn::Linear layers[2] = {nn::Linear(4, 4), nn::Linear(4, 4)};
    optim::Adam first(layers[0]->parameters(), 0.1), second(layers[1]->parameters(), 0.1);
    ddp::run([&](ddp::Group g) {
        ddp::State state(first);
        state.add("second", second);
        ddp::DistributedDataParallel a(g, layers[0], state), b(g, layers[1]);
        for (uint64_t n; (n = g.completed_steps()) < 40;) {
            if (dies && n == 11 && g.rank() == 1 && g.generation() == 0)
                raise(SIGKILL);
            auto &model = n % 2 == 0 ? a : b;
            optim::Adam &optimizer = n % 2 == 0 ? first : second;
            optimizer.zero_grad();
            model(torch::full({1, 4}, 0.1 * double(n + 1))).square().sum().backward();
            optimizer.step();
        }
        Tensor sums = layers[0]->weight.detach() * 7 + layers[1]->weight.detach();
        EXPECT(g, is_same(g, sums));
        ddp_log0(g.get(), "two models: %.17g\n", sums.abs().sum().item<double>());
    });
}

// --- what programs do wrong ----------------------------------------------------------------------

static void step_and_die(const ddp::Group &g, nn::Linear &layer, optim::Optimizer &optimizer)
{
    ddp::DistributedDataParallel model(g, layer, optimizer);
    for (int i = 0; i < 20; i++) {
        if (i == 5 && g.rank() == 1 && g.generation() == 0)
            raise(SIGKILL);
        optimizer.zero_grad();
        model(torch::ones({1, 4})).sum().backward();
        optimizer.step();
    }
}

static void misuse(const std::string &what)
{
    nn::Linear outer(4, 4);
    optim::Adam steady(outer->parameters(), 0.1);
    ddp::run([&](ddp::Group g) {
        if (what == "inside") {
            nn::Linear layer(4, 4);
            optim::Adam optimizer(layer->parameters(), 0.1);
            step_and_die(g, layer, optimizer);
        } else if (what == "optimizer") {
            optim::Adam optimizer(outer->parameters(), 0.1);
            step_and_die(g, outer, optimizer);
        } else if (what == "swallow") { // what it catches is not its own
            try {
                step_and_die(g, outer, steady);
            } catch (const std::exception &e) {
                printf("caught: %s\n", e.what());
                return;
            }
            printf("rank %d has completed %d steps\n", g.rank(), int(g.completed_steps()));
        } else if (what == "move") {
            ddp::DistributedDataParallel model(g, outer);
            outer->to(torch::kDouble);
            model(torch::ones({1, 4}, torch::kDouble)).sum().backward();
        } else if (g.rank() == 1) {
            throw std::logic_error("the labels are upside down");
        } else {
            g.barrier();
        }
    });
}

// Two threads use a model at the same time: what the header keeps, or what libddp does.
static void race(bool in_libddp)
{
    nn::Linear layer(4, 4);
    ddp::run([&](ddp::Group g) {
        ddp::DistributedDataParallel model(g, layer);
        std::thread other([&] {
            if (in_libddp)
                ddp_model_ready(model.get(), 0);
            else
                auto adding = model.no_sync();
        });
        if (in_libddp)
            ddp_model_ready(model.get(), 1);
        else
            model(torch::ones({1, 4})).sum().backward();
        other.join();
    });
}

struct SlowEnd { // as a program that frees much memory: the victims exit first
    ~SlowEnd() { sleep(3); }
};

int main(int argc, char **argv)
{
    const std::string what = argc > 1 ? argv[1] : "";
    torch::set_num_threads(1);
    try {
        if (what == "train" && argc > 2)
            train(argc, argv);
        else if (what == "bench" && argc > 3)
            bench(std::string(argv[2]) == "conv", size_t(std::stol(argv[3])));
        else if (what == "digits")
            return digits::main(argc - 1, argv + 1);
        else if (what == "gpt")
            return gpt::main(argc - 1, argv + 1);
        else if (what == "kinds" && argc > 2) {
            directory = argv[2];
            ddp::run(kinds);
        } else if (what == "two")
            two(argc > 2);
        else if (what == "race" && argc > 2)
            race(std::string(argv[2]) == "libddp");
        else
            misuse(what);
    } catch (const std::logic_error &e) {
        SlowEnd end;
        return 1;
    } catch (const std::exception &e) {
        fprintf(stderr, "failed: %s\n", e.what());
        return 1;
    }
    return 0;
}
