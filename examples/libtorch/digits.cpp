// digits.cpp - a convolutional network learns drawn digits, on any number of ranks:
//
//     ddprun -n 2 --max-restarts 3 ./digits [DIRECTORY]
//
// Kill a rank while it trains: it is replaced, and the result has the same bits. DIRECTORY, on a
// file system that all ranks see, gets a checkpoint after each epoch, from which a later run
// continues.
#include <ddp/torch.hpp>

#include <cstdio>

namespace nn = torch::nn;
using torch::Tensor;

constexpr int64_t n_train = 6000, n_test = 1000, n_epochs = 3, batch = 64;

// Digits of seven segments, moved and made noisy: no file to download.
static std::pair<Tensor, Tensor> draw_digits(int64_t n)
{
    static const char *const lit[10] = {"abcdef", "bc",     "abdeg", "abcdg",   "bcfg",
                                        "acdfg",  "acdefg", "abc",   "abcdefg", "abcdfg"};
    static const int64_t place[7][4] = {{3, 4, 6, 16},   {4, 12, 15, 17}, {14, 22, 15, 17}, // a b c
                                        {23, 24, 6, 16}, {14, 22, 5, 7},  {4, 12, 5, 7},    // d e f
                                        {13, 14, 6, 16}}; // g: rows, columns
    Tensor shapes = torch::zeros({10, 28, 28});
    for (int64_t digit = 0; digit < 10; digit++)
        for (const char *c = lit[digit]; *c != '\0'; c++) {
            const int64_t *p = place[*c - 'a'];
            shapes[digit].slice(0, p[0], p[1] + 1).slice(1, p[2], p[3] + 1).fill_(1);
        }
    const Tensor labels = torch::randint(10, {n}, torch::kLong);
    const Tensor moves = torch::randint(-3, 4, {n, 2}, torch::kLong);
    Tensor images = torch::empty({n, 1, 28, 28});
    for (int64_t i = 0; i < n; i++)
        images[i][0] = shapes[labels[i].item<int64_t>()].roll(
            {moves[i][0].item<int64_t>(), moves[i][1].item<int64_t>() + 3}, {0, 1});
    return {images + 0.5 * torch::randn_like(images), labels};
}

struct NetImpl : nn::Module {
    nn::Conv2d conv1{nullptr}, conv2{nullptr};
    nn::BatchNorm2d norm{nullptr};
    nn::Linear fc1{nullptr}, fc2{nullptr};

    NetImpl()
    {
        conv1 = register_module("conv1", nn::Conv2d(1, 8, 3));
        conv2 = register_module("conv2", nn::Conv2d(8, 16, 3));
        norm = register_module("norm", nn::BatchNorm2d(16));
        fc1 = register_module("fc1", nn::Linear(16 * 12 * 12, 64));
        fc2 = register_module("fc2", nn::Linear(64, 10));
    }
    Tensor forward(Tensor x)
    {
        x = torch::relu(conv1(x));
        x = torch::relu(norm(conv2(x)));
        x = torch::max_pool2d(x, 2).flatten(1);
        return torch::log_softmax(fc2(torch::relu(fc1(x))), 1);
    }
};
TORCH_MODULE(Net);

// Each rank looks at its share of the test set.
static double accuracy(const ddp::Group &world, Net &net, const Tensor &images,
                       const Tensor &labels)
{
    torch::NoGradGuard no_grad;
    int64_t first, end;
    ddp_shard_range(world.get(), images.size(0), &first, &end);
    net->eval();
    Tensor right = net(images.slice(0, first, end)).argmax(1).eq(labels.slice(0, first, end)).sum();
    net->train();
    world.all_reduce(right);
    return right.item<double>() / double(images.size(0));
}

int main(int argc, char **argv)
try {
    torch::manual_seed(1); // the same data on all ranks
    const auto [images, labels] = draw_digits(n_train);
    const auto [test_images, test_labels] = draw_digits(n_test);
    Net net;
    torch::optim::SGD optimizer(net->parameters(), torch::optim::SGDOptions(0.02).momentum(0.9));

    ddp::run([&](ddp::Group world) {
        ddp::DistributedDataParallel model(world, net, optimizer);
        ddp::DistributedSampler sampler(world, n_train);
        std::optional<ddp::Checkpoint> checkpoint;
        if (argc > 1) {
            checkpoint.emplace(world, argv[1]);
            const int64_t latest = checkpoint->latest();
            if (world.completed_steps() == 0 && latest >= 0)
                checkpoint->load(latest, *net, optimizer, sampler);
        }
        while (sampler.next_epoch(n_epochs)) {
            double loss_sum = 0;
            int64_t n_steps = 0;
            for (Tensor index; (index = sampler.next(batch)).numel() > 0; n_steps++) {
                optimizer.zero_grad();
                Tensor loss = torch::nll_loss(model(images.index_select(0, index)),
                                              labels.index_select(0, index));
                loss.backward();
                optimizer.step();
                loss_sum += loss.item<double>();
            }
            const double loss = world.mean(loss_sum / double(std::max<int64_t>(n_steps, 1)));
            const double share = accuracy(world, net, test_images, test_labels);
            ddp_log0(world.get(), "epoch %d: loss %.4f, accuracy %.3f\n", int(sampler.epoch()),
                     loss, share);
            if (checkpoint.has_value())
                checkpoint->save(sampler.epoch(), *net, optimizer, sampler);
        }
    });
    return 0;
} catch (const std::exception &e) {
    std::fprintf(stderr, "digits: %s\n", e.what());
    return 1;
}
