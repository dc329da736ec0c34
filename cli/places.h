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
/* What a command writes must not lie in `folder`, which `input` names, at any depth: a bundle is not one any more with a file that
 * its manifest does not have.  Folders above `path` need not be there.  Errors: USAGE, TOO_BIG. */
OMM_CHECKED omm_err place_check_outside(const char *option, const char *path, const char *input,
                                        const char *folder);
/* The same of every sealed bundle; `path` may be a folder that is to be made.  NULL is fine.  Errors: USAGE, TOO_BIG. */
OMM_CHECKED omm_err place_check_unsealed(const char *option, const char *path);

/* The folder of an output, and how many of it and those above it were made for it. */
typedef struct place_made {
    char folder[OMM_PATH_MAX];
    unsigned count;
} place_made;

bool place_is_folder(const char *path); /* or a link to one */

/* What rights and folders say of it, before anything is loaded or made.  Errors: those of place_make_output. */
OMM_CHECKED omm_err place_check_output(const char *path, const char *option);
/* A file can be made or replaced at `path`, which is said before hours of work and not after them; `option` named it.  The
 * folders between are made, and a file that gets no name is begun there: what has no rights to go by (/proc, a device, a
 * socket) is refused too, and so is a sealed bundle.  `made` is for place_unmake, also after an error; NULL: what is made
 * stays.  Errors: IO, USAGE (it is a folder, or in a sealed bundle), TOO_BIG. */
OMM_CHECKED omm_err place_make_output(place_made *made, const char *path, const char *option);
/* The same of a folder that a command will make and write files into; it is not made yet, and neither are those above it. */
OMM_CHECKED omm_err place_plan_folder(place_made *made, const char *path, const char *option);
/* Of an output that was not written: remove the folders again, where nothing has come into them. */
void place_unmake(const place_made *made);
/* Keep room of `bytes` for it where a file without a name can: until `room` is closed (omm_file_out_close, also after
 * an error), which is done just before the output is written.  Errors: IO (less is free), those above. */
OMM_CHECKED omm_err place_hold_room(omm_file_out *room, const char *path, const char *option,
                                    uint64_t bytes);
/* The same room is there now; none is kept.  path NULL is fine. */
OMM_CHECKED omm_err place_check_room(const char *path, const char *option, uint64_t bytes);
/* Its folder is made, for this user alone.  Errors: IO, TOO_BIG. */
OMM_CHECKED omm_err place_make_parent(const char *path);

#endif
