// Package node implements the running process: what weir run does, without its command line. Start
// assembles the parts and serves, Wait returns when the node is to end, and Close ends it. Several
// nodes in one process share only the liveness socket, whose name is derived from the configuration
// file, and the logger of the Redis client.
//
// # Start
//
//   - check that files and directories are writable (store.go)
//   - open the store (store.go)
//   - determine the configuration to serve: the pushed one, or the file (boot.go)
//   - create the proxy
//   - open the sockets, or take over those of systemd (listen.go), and load certificates (listen.go)
//   - accept connections, and start tasks
//
// Each task is a named goroutine (boot.go). Tasks watch the files and reload (reload.go), apply
// pushes (push.go), watch the other nodes (questions.go), run the leader's tasks (leader.go), answer
// operators (admin.go, plan.go) and health checks (reload.go), and notify systemd (boot.go).
//
// Each part that was started is pushed on a stack of closers (boot.go). Close pops them: first
// the node gives up the leadership and stops reloading, then it drains, then it leaves the cluster,
// then the tasks end, and finally proxy, statistics and store are closed. A part that does not
// close in time is reported by name and abandoned.
package node
