/* adapter.h - the actions of `meshmind adapter`, each a command line of its own. */
#ifndef CLI_ADAPTER_H
#define CLI_ADAPTER_H

/* argv[0] is "adapter ACTION"; they return exit codes. */
int adapter_show(int argc, char **argv);
int adapter_import(int argc, char **argv);
int adapter_export(int argc, char **argv);
int adapter_merge(int argc, char **argv);

#endif
