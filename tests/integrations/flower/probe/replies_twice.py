"""A SuperNode that sends every reply four times: twice at once, once later, once as a new message."""

import sys

from flwr.supercore.inflatable.inflatable_object import get_all_nested_objects, get_object_tree
from flwr.supercore.inflatable.inflatable_utils import inflate_object_from_contents
from flwr.supernode import start_client_internal as node
from flwr.supernode.cli import flower_supernode

push_once, contents = node._push_messages, {}


def push_twice(*, send, push_object, **stores):
    """Send what there is to send, and then all of it again."""
    sent = []

    def send_twice(*reply):
        sent.append(reply)
        first, second = send(*reply), send(*reply)
        return second if second[0] else first  # objects go to the last that was taken

    def push_and_keep(run_id, session_id, object_id, content):
        contents[object_id] = content
        push_object(run_id, session_id, object_id, content)

    push_once(send=send_twice, push_object=push_and_keep, **stores)
    for message, tree, seconds in sent:
        other = changed(message.metadata.message_id)
        for again, its_tree in [(message, tree), (other, get_object_tree(other))]:
            try:
                wanted, session_id = send(again, its_tree, seconds)
                for object_id in wanted:
                    push_object(again.metadata.run_id, session_id, object_id, contents[object_id])
                print("sent again", flush=True)
            except Exception as error:  # the run may be over
                print("not sent again:", error, flush=True)


def changed(message_id):
    """Return the same reply with an id of its own."""
    reply = inflate_object_from_contents(message_id, contents, keep_object_contents=True)
    reply.metadata.__dict__["_created_at"] -= 0.001
    contents.update((key, part.deflate()) for key, part in get_all_nested_objects(reply).items())
    reply.metadata.__dict__["_message_id"] = reply.object_id
    assert reply.object_id != message_id
    return reply


if __name__ == "__main__":
    node._push_messages = push_twice
    sys.exit(flower_supernode())
