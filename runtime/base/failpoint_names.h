/* SPDX-License-Identifier: Apache-2.0
 * All failpoints: area, point, kind (STEP: between two states; CALL: before a call that can fail; BYTES: where other
 * code relies on bytes), and where it is. Each is used exactly once in the code (tests/lint/failpoints.sh). */
#ifndef TCK_BASE_FAILPOINT_NAMES_H
#define TCK_BASE_FAILPOINT_NAMES_H

/* clang-format off */
#define FAILPOINT_LIST(X) \
    /* the trainer's side: attach, save, return, restore */ \
    X(attach, opened, STEP, "the agent has greeted, the other ranks do not know") \
    X(attach, claimed, STEP, "rank 0 has a term, the others do not know it yet") \
    X(attach, joined, STEP, "the agent has joined, the ranks have not agreed") \
    X(enrol, exchanged, STEP, "all shards are known, no memory was asked for") \
    X(enrol, mapped, STEP, "the slots are mapped, the ranks have not agreed") \
    X(save, asking, STEP, "a snapshot is begun, BEGIN not sent") \
    X(save, granted, STEP, "the grant was received, nothing is copied") \
    X(save, copying, STEP, "one shard is copied") \
    X(save, copied, STEP, "all is copied, nothing sealed") \
    X(save, sealing, STEP, "one slot is sealed") \
    X(save, sealed, STEP, "all is sealed, SEAL not sent") \
    X(save, told, STEP, "SEAL was sent") \
    X(comeback, greeted, STEP, "the next agent has given the slots back") \
    X(comeback, told, STEP, "SEAL or ABANDON was sent again") \
    X(restore, offered, STEP, "the agent has said where the shards are, the ranks have not agreed") \
    X(restore, spreading, STEP, "ranks pass shards to each other, one of them has passed its first") \
    X(restore, spread, BYTES, "a shard that came from another rank, not checked") \
    X(restore, agreed, STEP, "all ranks have theirs, nothing is copied") \
    X(restore, copying, STEP, "one shard is in the tensors") \
    X(restore, copied, STEP, "all shards are in the tensors, the agent does not know") \
    /* an agent starts, or resumes */ \
    X(agent, found, STEP, "parked memory is taken back, storage not open") \
    X(agent, stored, STEP, "storage is open, the catalog not") \
    X(agent, listed, STEP, "the catalog is open, the network not") \
    X(agent, listens, STEP, "trainers can connect, the supervisor has not received READY") \
    X(agent, ready, STEP, "the supervisor has received READY, the loop does not run") \
    X(resume, begun, STEP, "the kept term is read, its slots not") \
    X(fdstore, told, STEP, "the supervisor was given a descriptor, the agent has not noted it") \
    X(state, writing, STEP, "a page of the kept state is half written") \
    X(state, world, STEP, "the world's file is made, not parked") \
    /* a term is formed */ \
    X(term, made, STEP, "a term's file is there, empty") \
    X(term, write, CALL, "the note in a term's file") \
    X(term, fsync, CALL, "the sync of a term's file") \
    X(term, filled, STEP, "a term's file is written, its directory not synced") \
    X(term, claimed, STEP, "a term is claimed, the trainer does not know") \
    X(term, reserved, STEP, "a term is reserved on storage, the agent has not kept that") \
    X(term, granted, STEP, "a reserved term is given away and that is kept, no other process knows of it") \
    X(term, taken, STEP, "a reserved term was granted and that is kept, storage and the trainer do not know") \
    X(term, joining, STEP, "the older term is closed, the new one not kept") \
    X(term, joined, STEP, "the new term is kept, no other process knows of it") \
    X(segment, fdstore, STEP, "a segment is made, one of its two files to be parked") \
    X(segment, stored, STEP, "a segment is parked and entered") \
    X(enrol, allocating, STEP, "one shard has its segment") \
    X(enrol, forming, STEP, "all memory is there, the machine not") \
    X(enrol, formed, STEP, "the machine is there and the world kept, the others do not know") \
    /* a slot, from the grant to the commit */ \
    X(slot, granting, STEP, "the headers say filling, GRANT not sent") \
    X(slot, granted, STEP, "GRANT is sent") \
    X(slot, freeing, STEP, "a slot is free to the machine, its header not") \
    X(header, unsealing, STEP, "an older seal is about to go") \
    X(header, page, BYTES, "a page of a header, before it is written") \
    X(header, writing, STEP, "a page of a header is written but for its magic") \
    X(header, written, STEP, "a header is written") \
    X(digest, begun, STEP, "a digest is begun") \
    X(digest, made, STEP, "digests are made, the header does not say so") \
    X(digest, image, BYTES, "the image in its slot, after its digests were made") \
    X(copy, offered, STEP, "OFFER is sent") \
    X(copy, granting, STEP, "the holder has a slot for the copy, GRANT not sent") \
    X(copy, granted, STEP, "GRANT was received, no chunk sent") \
    X(copy, pushed, STEP, "a chunk was sent") \
    X(copy, arrived, STEP, "a chunk is in the holder's slot, not checked") \
    X(copy, chunk, BYTES, "a chunk that has arrived, before it is checked") \
    X(copy, whole, STEP, "all chunks are checked, the header does not say so") \
    X(copy, stored, STEP, "the holder's header says verified, ACK not sent") \
    X(copy, acked, STEP, "the owner has received ACK, or that it failed") \
    X(copy, pulled, STEP, "another node asks for a copy, none is sent") \
    X(ready, sending, STEP, "all shards are protected, READY not sent") \
    X(ready, sent, STEP, "READY is sent") \
    X(decision, made, STEP, "a decision is made, not kept") \
    X(decision, kept, STEP, "a decision is kept, no other process knows of it") \
    X(decision, announced, STEP, "a decision is announced") \
    X(decision, learned, STEP, "a decision was received, not kept") \
    X(commit, marking, STEP, "a version is committed, its headers do not say so") \
    X(commit, telling, STEP, "its headers say committed, the trainers do not know") \
    /* storage */ \
    X(drain, begun, STEP, "a drain is begun, nothing written") \
    X(stage, made, STEP, "the stage is there, no file in it") \
    X(shard, opened, STEP, "a shard's part file is made, empty") \
    X(shard, allocate, CALL, "the allocation of a shard's file") \
    X(uring, write, CALL, "a write of a shard") \
    X(uring, fdatasync, CALL, "the sync of a shard") \
    X(shard, written, STEP, "a shard is written and synced, not read back") \
    X(shard, read_back, CALL, "reading a shard back") \
    X(shard, given_back, BYTES, "what storage gives back of a shard") \
    X(shard, named, STEP, "a shard's file has its name, the directory not synced") \
    X(drain, file_done, STEP, "one shard is drained") \
    X(drain, telling, STEP, "this node's part is drained, DRAINED not sent") \
    X(drain, told, STEP, "DRAINED is sent") \
    X(drain, gathered, STEP, "the coordinator has taken files into the manifest") \
    X(publish, checked, STEP, "all files are in the stage, the manifest not") \
    X(publish, complete, STEP, "the manifest is in the stage, the term not checked") \
    X(publish, intended, STEP, "the audit file has the intent of the publish, nothing moved") \
    X(publish, moved, STEP, "the version has its name, no directory synced") \
    X(publish, synced, STEP, "the version is published, the audit file does not say so") \
    X(publish, done, STEP, "published, the event loop does not know") \
    X(publish, hearing, STEP, "published, the decision does not say so") \
    X(publish, tidying, STEP, "published, older versions are still there") \
    X(prune, intended, STEP, "the audit file has the intent of the deletion, nothing moved") \
    X(prune, moved, STEP, "a version is in the trash, no directory synced") \
    X(prune, unpublished, STEP, "a version is in the trash, durably, and whole") \
    X(prune, deleting, STEP, "one file of a version in the trash is deleted") \
    X(prune, emptied, STEP, "a directory in the trash is empty") \
    X(repair, intended, STEP, "the audit file has the intent to repair a published file, nothing is made") \
    X(repair, opened, STEP, "the new file is made in the stage, empty") \
    X(repair, read, BYTES, "a chunk of the damaged file or of the new one, before it is checked") \
    X(repair, write, CALL, "a write of the new file") \
    X(repair, fsync, CALL, "the sync of the new file") \
    X(repair, written, STEP, "the new file is written and synced, not read back") \
    X(repair, checked, STEP, "the new file is read back, not in its place") \
    X(repair, moved, STEP, "the new file is in its place, the directory not synced") \
    X(repair, done, STEP, "a file is repaired or is not, the event loop does not know") \
    X(file, write, CALL, "the write of a small file") \
    X(file, fsync, CALL, "the sync of a small file") \
    X(file, rename, CALL, "a part file gets its name") \
    X(dir, make, CALL, "a directory is made") \
    X(dir, move, CALL, "a version is moved to its place, or to the trash") \
    X(dir, remove, CALL, "a file or directory is removed") \
    X(dir, fsync, CALL, "the sync of a directory") \
    /* storage in a bucket, whose cases are the suite's s3 */ \
    X(object, claiming, STEP, "the object of a term is about to be created") \
    X(object, claimed, STEP, "a term's object is there, or another one was faster; the claimer does not know") \
    X(object, uploading, STEP, "an upload in parts is begun, no part sent") \
    X(object, finishing, STEP, "all parts are there, the upload not finished") \
    X(object, finished, STEP, "a shard's object is there, the drain does not know") \
    X(object, publishing, STEP, "the audit file has the intent of the publish, the manifest is not there") \
    X(object, published, STEP, "the manifest is there, the files not listed once more") \
    X(object, unpublished, STEP, "a version's manifest is deleted, its files are there") \
    X(audit, write, CALL, "a line of the audit file") \
    X(audit, fdatasync, CALL, "the sync of the audit file") \
    X(catalog, open, CALL, "the catalog is opened") \
    X(catalog, write, CALL, "a row of the catalog") \
    X(catalog, writing, STEP, "the older rows are read, the new one not written") \
    /* recovery */ \
    X(recovery, begins, STEP, "all nodes have registered, none was asked") \
    X(recovery, answering, STEP, "another node asks for the inventory") \
    X(recovery, listing, STEP, "storage is about to be listed") \
    X(recovery, planned, STEP, "there is a plan, nothing fetched") \
    X(fetch, slot_given, STEP, "a shard that is to be fetched has its slot") \
    X(fetch, checked, STEP, "a copy that was here already is checked, no other process knows") \
    X(fetch, arrived, STEP, "a shard is fetched, its header does not say so") \
    X(fetch, verified, STEP, "its header says so, the coordinator does not know") \
    X(uring, read, CALL, "a read of a shard") \
    X(shard, reading, STEP, "a published shard is opened") \
    X(shard, read, BYTES, "a chunk of a published shard, before it is checked") \
    X(recovery, readable, STEP, "the base is kept, no trainer knows") \
    X(recovery, told, STEP, "the agents know what can be read") \
    X(restore, answering, STEP, "a trainer is about to learn where its shards are") \
    X(recovery, protected, STEP, "all copies are there again, the decision does not say so") \
    X(recovery, based, STEP, "the decision says so, older versions may go") \
    /* the supervisor */ \
    X(supervisor, starting, STEP, "about to start the agent") \
    X(supervisor, started, STEP, "the agent is started") \
    X(supervisor, took, STEP, "a message of the agent is taken, and with it a descriptor") \
    X(supervisor, agent_died, STEP, "the agent is dead, not started again")
/* clang-format on */

#endif
