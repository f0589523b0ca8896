// Package node is the running process: what weir run does, without its command line.
// Start puts the parts together and serves, Wait tells when to end, and Close ends.
// Several nodes in one process share nothing but the name under which they answer
// health checks, and the Redis client's one logger.
//
// # Start
//
// In this order: what must be writable on disk is tried; the store is opened (store.go);
// it is found out what to serve first (boot.go), which is what was pushed to all
// nodes or the file; the proxy is made; the sockets are opened, those of systemd taken
// over (sockets.go, listen.go) and certificates read (tls.go); then all listeners take
// connections, and tasks begin.
//
// # While it runs
//
// Each task is a goroutine with a name (tasks.go): it watches the files and reloads
// (reload.go), takes up pushes (push.go), hears of the other nodes (peers.go), does
// for all nodes what the leader does (leader.go), answers the operators (admin.go,
// plan.go) and health checks (liveness.go), and reports to systemd (systemd.go).
//
// # End
//
// Each part that has begun is pushed on one stack of closers (closers.go), with its
// name. Close takes them off: first this node gives up the lead and reloads no more,
// then it drains, then it leaves the cluster, then tasks end, and at last proxy,
// statistics and store are closed. A part that hangs is named, and left behind.
package node
