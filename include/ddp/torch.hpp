// torch.hpp - DistributedDataParallel for modules of libtorch, the C++ interface of PyTorch.
//
//     #include <ddp/torch.hpp>
//
//     Net net;                                          // outside of the function: they outlive a
//     torch::optim::SGD optimizer(net->parameters(), 0.01);                   // replaced rank
//     ddp::run([&](ddp::Group world) {
//         ddp::DistributedDataParallel model(world, net, optimizer);
//         ddp::DistributedSampler sampler(world, n_images);
//         while (sampler.next_epoch(n_epochs))
//             for (torch::Tensor index; (index = sampler.next(64)).numel() > 0;) {
//                 optimizer.zero_grad();
//                 auto loss = torch::nll_loss(model(images.index_select(0, index)),
//                                             labels.index_select(0, index));
//                 loss.backward();                      // gradients are averages when it returns
//                 optimizer.step();
//             }
//     });
//
// Header only: the program compiles it with its own libtorch (tested: 2.11 and 2.15; C++17, or what
// libtorch asks for), and links libddp. Tensors of the CPU and of the rank's GPU.
// docs/how-to/libtorch.md is the guide.
//
// Failures are exceptions, derived from std::exception: see torch/error.hpp. Threads: one at a
// time, as in libddp. loss.backward() may be called on any thread.
#ifndef DDP_TORCH_HPP
#define DDP_TORCH_HPP

#include <ddp/torch/checkpoint.hpp>
#include <ddp/torch/error.hpp>
#include <ddp/torch/group.hpp>
#include <ddp/torch/parallel.hpp>
#include <ddp/torch/sampler.hpp>
#include <ddp/torch/state.hpp>
#include <ddp/torch/syncbn.hpp>

#endif
