/* ddp.h - all of libddp. */
#ifndef DDP_DDP_H
#define DDP_DDP_H

#include <ddp/checkpoint.h>
#include <ddp/collective.h>
#include <ddp/device.h>
#include <ddp/elastic.h>
#include <ddp/env.h>
#include <ddp/error.h>
#include <ddp/group.h>
#include <ddp/loader.h>
#include <ddp/memory.h>
#include <ddp/model.h>
#include <ddp/pipeline.h>
#include <ddp/precision.h>
#include <ddp/progress.h>
#include <ddp/safetensors.h>
#include <ddp/sampler.h>
#include <ddp/scaler.h>
#include <ddp/spawn.h>
#include <ddp/store.h>
#include <ddp/syncbn.h>
#include <ddp/types.h>
#include <ddp/zero.h>

#define DDP_VERSION_MAJOR 0
#define DDP_VERSION_MINOR 1
#define DDP_VERSION_PATCH 0

#endif
