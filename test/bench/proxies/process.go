package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/weir-proxy/weir/test/processgroup"
)

// A side is which processors something has, where there are several.
type side int

const (
	contestants side = iota // the first ones
	others                  // those that no contestant ever has
)

// of is how many processors a side has.
func (b *bench) of(s side) int {
	if s == contestants {
		return b.now
	}
	return max(runtime.NumCPU()-b.cores, 1)
}

// pinned begins a command line that keeps to the processors of s.
func (b *bench) pinned(s side) []string {
	if _, err := exec.LookPath("taskset"); err != nil || runtime.NumCPU() < 2 {
		return nil
	}
	first := 0
	if s == others {
		first = b.cores
	}
	return []string{"taskset", "-c", fmt.Sprintf("%d-%d", first, first+b.of(s)-1)}
}

// A process is one that was started here, with all that it has started.
type process struct {
	cmd   *exec.Cmd
	ended chan struct{} // closed when it has
}

// start starts a server and waits until it listens.
func (b *bench) start(s side, port int, args ...string) (*process, error) {
	args = append(b.pinned(s), args...)
	cmd := exec.Command(args[0], args[1:]...)
	processgroup.Lead(cmd)
	said, err := os.Create(filepath.Join(b.dir, "output"))
	if err != nil {
		return nil, err
	}
	defer said.Close()
	cmd.Stdout, cmd.Stderr = said, said
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	p := &process{cmd, make(chan struct{})}
	go func() { _ = cmd.Wait(); close(p.ended) }()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	deadline := time.After(20 * time.Second)
	for waiting := true; waiting; {
		if c, err := net.Dial("tcp", local(port)); err == nil {
			c.Close()
			return p, nil
		}
		select {
		case <-tick.C:
		case <-p.ended:
			waiting = false
		case <-deadline:
			waiting = false
		}
	}
	p.stop()
	text, _ := os.ReadFile(said.Name())
	return nil, fmt.Errorf("%s does not listen on %d: %s", strings.Join(args, " "), port, text)
}

// stop ends the process and those that it has started.
func (p *process) stop() {
	if p == nil {
		return
	}
	processgroup.Signal(p.cmd, syscall.SIGTERM)
	select {
	case <-p.ended:
	case <-time.After(5 * time.Second):
		processgroup.Signal(p.cmd, syscall.SIGKILL)
		<-p.ended
	}
}

// cpu is the time that the process and its children in the same group have had. The
// scheduler counts it exactly; threads and processes that have ended do not count. That of
// no process is 0.
func (p *process) cpu() (total time.Duration) {
	if p == nil {
		return 0
	}
	stats, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, name := range stats {
		text, err := os.ReadFile(name)
		if err != nil {
			continue // it has ended
		}
		_, rest, _ := strings.Cut(string(text), ") ")
		f := strings.Fields(rest)
		if len(f) < 3 || f[2] != strconv.Itoa(p.cmd.Process.Pid) {
			continue
		}
		threads, _ := filepath.Glob(filepath.Join(filepath.Dir(name), "task", "*", "schedstat"))
		for _, thread := range threads {
			text, _ := os.ReadFile(thread)
			ran, _, _ := strings.Cut(string(text), " ")
			n, _ := strconv.ParseInt(ran, 10, 64)
			total += time.Duration(n)
		}
	}
	return total
}

// certify writes a certificate for 127.0.0.1 and its key, which all contestants use.
func (b *bench) certify() error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return fmt.Errorf("make a key: %w", err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
	}
	cert, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return fmt.Errorf("make a certificate: %w", err)
	}
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return fmt.Errorf("write the key: %w", err)
	}
	b.write("cert.pem", string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: cert})))
	b.write("key.pem", string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})))
	return nil
}
