/* commands.h - completion of ddpctl: a command, perhaps an action of it, options. Prints to
 * stdout. */
#ifndef DDP_CTL_COMPLETION_COMMANDS_H
#define DDP_CTL_COMPLETION_COMMANDS_H

void commands_print_bash(void);
void commands_print_zsh(void);
void commands_print_fish(void);

#endif
