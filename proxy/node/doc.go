// Package node implements the running process of weir run, without the command line. Start
// builds the parts and begins to serve, Wait returns when the node should end, and Close
// ends it. Several nodes in one process share only the name under which they answer health
// checks, and the global logger of the Redis client.
//
// # Start
//
// In this order:
//
//   - check that files and directories are writable (writable.go)
//   - open the store (store.go)
//   - determine the configuration to serve: the pushed one, or the file (boot.go)
//   - create the proxy
//   - open the sockets, or take over those of systemd (sockets.go, listen.go), and load certificates (tls.go)
//   - accept connections, and start tasks
//
// # Tasks
//
// Each task is a goroutine with a name (tasks.go). Tasks watch the files and reload
// (reload.go), apply pushes (push.go), watch the other nodes (peers.go), run the leader's
// tasks (leader.go), serve operators (admin.go, plan.go) and health checks (liveness.go),
// and notify systemd (systemd.go).
//
// # Shutdown
//
// Each started part is pushed on one stack of closers with its name (closers.go). Close
// runs them in reverse order: the node resigns as leader and stops reloading, drains,
// leaves the cluster, ends its tasks, and closes proxy, statistics and store. A part that
// does not close in time is reported by name and abandoned.
package node
