package redistest

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// A Sentinel group is a master, one replica and three sentinels that replace a
// master which has not answered for half a second. It ends with the test.
type Sentinel struct {
	Master, Replica *Server
	Addrs           []string // of the sentinels
	Name            string   // what the sentinels call the master

	tb        testing.TB
	sentinels []*Server
}

// StartSentinel starts the group and waits until the replica follows and the
// sentinels know each other: some 3 s.
func StartSentinel(tb testing.TB) *Sentinel {
	tb.Helper()
	s := &Sentinel{Name: "weir", tb: tb}
	s.Master = Start(tb, "--repl-diskless-sync-delay", "0")
	s.Replica = Start(tb, "--repl-diskless-sync-delay", "0", "--replicaof", "127.0.0.1 "+strconv.Itoa(s.Master.Port))
	for range 3 {
		one := s.sentinel()
		s.sentinels, s.Addrs = append(s.sentinels, one), append(s.Addrs, one.Addr)
	}
	s.wait(s.Replica.Addr, "replication", func(info string) bool {
		return strings.Contains(info, "master_link_status:up")
	}, "info", "replication")
	for _, addr := range s.Addrs {
		s.wait(addr, "two other sentinels and a replica", func(reply string) bool {
			return strings.Contains(reply, "num-other-sentinels 2") && strings.Contains(reply, "num-slaves 1")
		}, "sentinel", "master", s.Name)
	}
	return s
}

// Signal sends sig to all processes of the group.
func (s *Sentinel) Signal(sig syscall.Signal) {
	for _, one := range append(s.sentinels, s.Master, s.Replica) {
		one.Signal(sig)
	}
}

// Promoted waits until the sentinels agree that addr is the master.
func (s *Sentinel) Promoted(addr string) {
	s.tb.Helper()
	_, port, err := net.SplitHostPort(addr)
	if err != nil {
		s.tb.Fatal(err)
	}
	for _, sentinel := range s.Addrs {
		s.wait(sentinel, addr+" to be the master", func(reply string) bool {
			return strings.Contains(reply, port)
		}, "sentinel", "get-master-addr-by-name", s.Name)
	}
	s.wait(addr, "the role of a master", func(reply string) bool {
		return strings.Contains(reply, "role:master")
	}, "info", "replication")
}

// sentinel starts one sentinel; its file is where it remembers what it learns.
func (s *Sentinel) sentinel() *Server {
	s.tb.Helper()
	dir, err := os.MkdirTemp("", "weir-sentinel-")
	if err != nil {
		s.tb.Fatal(err)
	}
	s.tb.Cleanup(func() { os.RemoveAll(dir) })
	file := filepath.Join(dir, "sentinel.conf")
	text := fmt.Sprintf(`sentinel monitor %[1]s 127.0.0.1 %[2]d 2
sentinel down-after-milliseconds %[1]s 500
sentinel failover-timeout %[1]s 4000
`, s.Name, s.Master.Port)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		s.tb.Fatal(err)
	}
	return (&Server{tb: s.tb, dir: filepath.Dir(file), sentinel: file}).start() // which knows no persistence
}

// wait asks addr until its reply satisfies, for at most 30 s.
func (s *Sentinel) wait(addr, what string, satisfies func(string) bool, args ...any) {
	s.tb.Helper()
	rdb := redis.NewClient(&redis.Options{Addr: addr, MaxRetries: -1, DialerRetries: 1, Protocol: 2})
	defer rdb.Close()
	deadline, tick := time.Now().Add(30*time.Second), time.NewTicker(20*time.Millisecond)
	defer tick.Stop()
	for {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		reply, err := rdb.Do(ctx, args...).Result()
		cancel()
		text := strings.Trim(fmt.Sprint(reply), "[]")
		if err == nil && satisfies(text) {
			return
		}
		if time.Now().After(deadline) {
			s.tb.Fatalf("waited 30 s for %s; %s says %v, %v", what, addr, text, err)
		}
		<-tick.C
	}
}
