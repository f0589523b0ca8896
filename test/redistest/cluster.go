package redistest

import (
	"bufio"
	"fmt"
	"net"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/weir-proxy/weir/test/await"
)

// slots is how many a cluster shares out.
const slots = 16384

// A Cluster is a Redis Cluster on 127.0.0.1: masters first, then a replica of
// each.
type Cluster struct {
	Nodes []*Server
}

// Addrs are the addresses of all nodes.
func (c *Cluster) Addrs() []string {
	addrs := make([]string, len(c.Nodes))
	for i, n := range c.Nodes {
		addrs[i] = n.Addr
	}
	return addrs
}

// StartCluster runs a cluster of so many masters and as many replicas, and waits
// until every node knows it and serves. It ends with the test.
func StartCluster(tb testing.TB, masters int) *Cluster {
	tb.Helper()
	return startCluster(tb, masters, masters, 1500*time.Millisecond)
}

// StartMasters is StartCluster without replicas, for load under which nodes may be silent for seconds.
func StartMasters(tb testing.TB, masters int) *Cluster {
	tb.Helper()
	return startCluster(tb, masters, 0, time.Minute)
}

func startCluster(tb testing.TB, masters, replicas int, nodeTimeout time.Duration) *Cluster {
	tb.Helper()
	c := &Cluster{}
	for range masters + replicas {
		c.Nodes = append(c.Nodes, startNode(tb, nodeTimeout))
	}
	for i, n := range c.Nodes {
		for _, other := range c.Nodes[:i] { // they would tell each other, at some time
			n.must("cluster meet 127.0.0.1 " + strconv.Itoa(other.Port))
		}
		if i < masters {
			n.must("cluster addslots" + numbers(i*slots/masters, (i+1)*slots/masters))
		}
	}
	c.wait(tb, "know each other", func(n *Server) bool {
		return strings.Contains(n.must("cluster info"), fmt.Sprintf("cluster_known_nodes:%d\r", len(c.Nodes)))
	})
	for i, n := range c.Nodes[masters:] {
		n.must("cluster replicate " + c.Nodes[i].must("cluster myid"))
	}
	c.Serves(tb)
	c.wait(tb, "have replicas", func(n *Server) bool {
		info := n.must("info replication")
		return replicas == 0 || strings.Contains(info, "master_link_status:up") || strings.Contains(info, "connected_slaves:1")
	})
	return c
}

// Serves waits until every node says that all slots are served.
func (c *Cluster) Serves(tb testing.TB) {
	tb.Helper()
	c.wait(tb, "serve", func(n *Server) bool {
		info := n.must("cluster info")
		return strings.Contains(info, "cluster_state:ok") && strings.Contains(info, "cluster_slots_ok:16384")
	})
}

// Signal sends sig to all nodes.
func (c *Cluster) Signal(sig syscall.Signal) {
	for _, n := range c.Nodes {
		n.Signal(sig)
	}
}

// startNode starts a server with room for the bus, which listens 10,000 ports
// higher.
func startNode(tb testing.TB, timeout time.Duration) *Server {
	tb.Helper()
	return (&Server{tb: tb, dir: folder(tb), args: []string{
		"--cluster-enabled", "yes", "--cluster-node-timeout", strconv.FormatInt(timeout.Milliseconds(), 10),
		"--cluster-replica-validity-factor", "0", "--repl-diskless-sync-delay", "0",
	}}).start()
}

// wait waits until something holds of every node.
func (c *Cluster) wait(tb testing.TB, what string, holds func(n *Server) bool) {
	tb.Helper()
	for _, n := range c.Nodes {
		await.Within(tb, 30*time.Second, "the cluster's nodes "+what, func() bool { return holds(n) })
	}
}

// must sends one command by hand and returns its reply without the framing.
func (s *Server) must(command string) string {
	s.tb.Helper()
	reply, err := s.ask(command)
	if err != nil {
		s.tb.Fatalf("%.60s: %v", command, err)
	}
	return reply
}

func (s *Server) ask(command string) (string, error) {
	conn, err := net.DialTimeout("tcp", s.Addr, 5*time.Second)
	if err != nil {
		return "", err
	}
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(10 * time.Second))
	words := strings.Fields(command)
	var b strings.Builder
	fmt.Fprintf(&b, "*%d\r\n", len(words))
	for _, w := range words {
		fmt.Fprintf(&b, "$%d\r\n%s\r\n", len(w), w)
	}
	if _, err := conn.Write([]byte(b.String())); err != nil {
		return "", err
	}
	r := bufio.NewReader(conn)
	line, err := r.ReadString('\n')
	if err != nil {
		return "", err
	}
	line = strings.TrimRight(line, "\r\n")
	if line[0] == '-' {
		return "", fmt.Errorf("%s", line[1:])
	}
	if line[0] != '$' {
		return line[1:], nil
	}
	size, err := strconv.Atoi(line[1:])
	if err != nil || size < 0 {
		return "", err
	}
	body := make([]byte, size)
	for n := 0; n < size; {
		m, err := r.Read(body[n:])
		if err != nil {
			return "", err
		}
		n += m
	}
	return string(body), nil
}

// numbers are from, from+1, … up to and without to, each after a blank.
func numbers(from, to int) string {
	var b strings.Builder
	for i := from; i < to; i++ {
		b.WriteByte(' ')
		b.WriteString(strconv.Itoa(i))
	}
	return b.String()
}
