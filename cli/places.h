/* places.h - where files of this user are: the XDG folders, each with openmeshmind/ in it. */
#ifndef CLI_PLACES_H
#define CLI_PLACES_H

#include "omm/err.h"
#include "omm/file.h"

typedef enum place {
    PLACE_CONFIG, /* $XDG_CONFIG_HOME, ~/.config */
    PLACE_DATA,   /* $XDG_DATA_HOME, ~/.local/share */
    PLACE_STATE,  /* $XDG_STATE_HOME, ~/.local/state */
} place;

/* The path of `name` there.  Errors: CONFIG (neither the variable nor HOME is an absolute path), TOO_BIG. */
OMM_CHECKED omm_err place_path(char out[OMM_PATH_MAX], place where, const char *name);
/* The node file: `named`, or where it is NULL the one that `node setup` makes.  Errors: USAGE (it has not been made),
 * CONFIG, TOO_BIG. */
OMM_CHECKED omm_err place_node_file(char out[OMM_PATH_MAX], const char *named);
/* A file can be made or replaced at `path`, which is said before hours of work and not after them; `option` named it.
 * Nothing is made.  Errors: IO, USAGE (it is a folder), TOO_BIG. */
OMM_CHECKED omm_err place_check_output(const char *path, const char *option);
/* The same; the folders between are made, and a file that gets no name is begun there: what has no rights to go by
 * (/proc, a device, a socket) is refused too.  Errors: the same. */
OMM_CHECKED omm_err place_make_output(const char *path, const char *option);
/* How many of `folder` and those above it are still to be made. */
unsigned place_missing(const char *folder);
/* Remove so many of them again, from `folder` upwards, where nothing has come into them. */
void place_unmake(const char *folder, unsigned count);
/* Keep room of `bytes` for it where a file without a name can: until `room` is closed (omm_file_out_close, also after
 * an error), which is done just before the output is written.  Errors: IO (less is free), those above. */
OMM_CHECKED omm_err place_hold_room(omm_file_out *room, const char *path, const char *option,
                                    uint64_t bytes);
/* Its folder is made, for this user alone.  Errors: IO, TOO_BIG. */
OMM_CHECKED omm_err place_make_parent(const char *path);

#endif
