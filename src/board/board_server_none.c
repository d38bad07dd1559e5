/* board_server_none - the server of a program that was built with -DBOARD=OFF. */
#include "board/board_server.h"

bool board_server_is_there(void)
{
    return false;
}

int board_server_open(struct board_server **server, struct board *b,
                      const struct board_server_options *options, struct error *err)
{
    (void)b;
    (void)options;
    *server = NULL;
    return error_set(
        err, ERROR_INPUT,
        "this program was built without the board's server (-DBOARD=OFF); "
        "trefoil top shows the same in a terminal, and --save writes a page");
}

void board_server_close(struct board_server *server)
{
    (void)server;
}

int board_server_port(const struct board_server *server)
{
    (void)server;
    return 0;
}

const struct board_guard *board_server_guard(const struct board_server *server)
{
    (void)server;
    return NULL;
}

void board_server_tick(struct board_server *server)
{
    (void)server;
}
