package redistest

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

const slots = 16384

// A Cluster is three masters with one replica each. It ends with the test.
type Cluster struct {
	// Nodes are the servers: at first 0 to 2 are masters, and 3 to 5 their
	// replicas in the same order.
	Nodes []*Server

	tb testing.TB
}

// StartCluster starts six servers, joins them and waits until every node sees
// the whole cluster and every replica follows its master: some 2 s. A master
// that does not answer is replaced after about 1 s.
func StartCluster(tb testing.TB) *Cluster {
	tb.Helper()
	c := &Cluster{tb: tb}
	var buses []int // the ports for neighbours
	for range 6 {
		buses = append(buses, FreePort(tb))
		c.Nodes = append(c.Nodes, startNode(tb, buses[len(buses)-1]))
	}
	for i, node := range c.Nodes[:3] {
		c.do(node, "cluster", "addslotsrange", i*slots/3, (i+1)*slots/3-1)
	}
	for i, node := range c.Nodes[1:] {
		c.do(c.Nodes[0], "cluster", "meet", "127.0.0.1", node.Port, buses[1+i])
	}
	for i, node := range c.Nodes[:3] {
		id := c.do(node, "cluster", "myid").(string)
		c.wait(c.Nodes[3+i], "to know its master", func(string) bool {
			return c.try(c.Nodes[3+i], "cluster", "replicate", id) == nil
		}, "ping")
	}
	for _, node := range c.Nodes {
		c.wait(node, "a whole cluster", func(info string) bool {
			return strings.Contains(info, "cluster_state:ok") && strings.Contains(info, "cluster_known_nodes:6")
		}, "cluster", "info")
		c.wait(node, "three masters and three replicas", func(nodes string) bool {
			return strings.Count(nodes, " connected") == 6 && strings.Count(nodes, "slave ") == 3
		}, "cluster", "nodes")
	}
	for _, node := range c.Nodes[3:] {
		c.wait(node, "replication", func(info string) bool {
			return strings.Contains(info, "master_link_status:up")
		}, "info", "replication")
	}
	return c
}

func startNode(tb testing.TB, bus int) *Server {
	tb.Helper()
	return Start(tb,
		"--cluster-enabled", "yes", "--cluster-config-file", "nodes.conf", "--cluster-node-timeout", "1000",
		"--cluster-port", strconv.Itoa(bus), "--repl-diskless-sync-delay", "0",
	)
}

// Addrs are the addresses of all nodes.
func (c *Cluster) Addrs() []string {
	var addrs []string
	for _, node := range c.Nodes {
		addrs = append(addrs, node.Addr)
	}
	return addrs
}

// Master is the server that owns the slot of key now, as a living node sees it.
func (c *Cluster) Master(key string) *Server {
	c.tb.Helper()
	for _, node := range c.Nodes {
		slot, err := c.ask(node, "cluster", "keyslot", key)
		if err != nil {
			continue // killed
		}
		ranges, err := c.ask(node, "cluster", "slots")
		if err != nil {
			continue
		}
		for _, item := range ranges.([]any) {
			r := item.([]any)
			if r[0].(int64) <= slot.(int64) && slot.(int64) <= r[1].(int64) {
				return c.at(int(r[2].([]any)[1].(int64)))
			}
		}
	}
	c.tb.Fatalf("no living node knows a master for %s", key)
	return nil
}

func (c *Cluster) at(port int) *Server {
	for _, node := range c.Nodes {
		if node.Port == port {
			return node
		}
	}
	c.tb.Fatalf("no node on port %d", port)
	return nil
}

// ask sends one command to one node.
func (c *Cluster) ask(node *Server, args ...any) (any, error) {
	rdb := redis.NewClient(&redis.Options{Addr: node.Addr, MaxRetries: -1, DialerRetries: 1, Protocol: 2})
	defer rdb.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	return rdb.Do(ctx, args...).Result()
}

func (c *Cluster) try(node *Server, args ...any) error {
	_, err := c.ask(node, args...)
	return err
}

func (c *Cluster) do(node *Server, args ...any) any {
	c.tb.Helper()
	reply, err := c.ask(node, args...)
	if err != nil {
		c.tb.Fatalf("%v at %s: %v", args, node.Addr, err)
	}
	return reply
}

// wait asks node until its reply satisfies, for at most 30 s.
func (c *Cluster) wait(node *Server, what string, satisfies func(string) bool, args ...any) {
	c.tb.Helper()
	deadline := time.Now().Add(30 * time.Second)
	for {
		reply, err := c.ask(node, args...)
		if err == nil && satisfies(fmt.Sprint(reply)) {
			return
		}
		if time.Now().After(deadline) {
			c.tb.Fatalf("node %s waited 30 s for %s; it says %v, %v", node.Addr, what, reply, err)
		}
		<-time.After(20 * time.Millisecond)
	}
}
