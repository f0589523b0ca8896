package node

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net"
	"net/http"
	"path/filepath"
	"runtime"
	"time"
)

// livenessRetry is when a socket is tried again that another weir has.
const livenessRetry = time.Second

// livenessName is the socket on which a weir that was started with that file says that
// it lives: a name in the network namespace (of a container, say) and no file, so that
// it needs no folder to write to and is gone with the process. Only Linux has such
// names; elsewhere it is "".
func livenessName(path string) string {
	whole, err := filepath.Abs(path)
	if err != nil || runtime.GOOS != "linux" {
		return ""
	}
	sum := sha256.Sum256([]byte(whole))
	return "@weir/" + hex.EncodeToString(sum[:12])
}

// serveLiveness answers whoever asks whether this weir lives, until ctx is done. A health
// check finds it so whatever the file says by now of the admin listener. While
// another weir that serves the same file has the socket, that one answers.
func serveLiveness(ctx context.Context, path string) {
	name := livenessName(path)
	if name == "" {
		return
	}
	var l net.Listener
	for l == nil {
		var err error
		if l, err = (&net.ListenConfig{}).Listen(ctx, "unix", name); err == nil {
			break
		}
		select {
		case <-time.After(livenessRetry):
		case <-ctx.Done():
			return
		}
	}
	s := &http.Server{ReadHeaderTimeout: connectPatience, Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Write([]byte("ok\n"))
	})}
	defer context.AfterFunc(ctx, func() { s.Close() })()
	_ = s.Serve(l) // until it is closed
}

// Alive asks the weir that was started with that file. It is an error when there is
// none, or none that answers.
func Alive(ctx context.Context, path string) error {
	name := livenessName(path)
	if name == "" {
		return net.ErrClosed
	}
	t := &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", name)
	}}
	return healthy(ctx, &http.Client{Transport: t}, "http://weir/healthz")
}

// Healthy asks the weir whose admin listener is at addr whether it lives.
func Healthy(ctx context.Context, addr string) error {
	return healthy(ctx, http.DefaultClient, "http://"+Reachable(addr)+"/healthz")
}

// healthy asks a weir whether it lives.
func healthy(ctx context.Context, client *http.Client, url string) error {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return fmt.Errorf("healthcheck: %w", err)
	}
	answer, err := client.Do(r)
	if err != nil {
		return fmt.Errorf("healthcheck: %w", err)
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		return fmt.Errorf("healthcheck: %s", answer.Status)
	}
	return nil
}

// Reachable is the address to dial for one that is listened on: a wildcard is
// reached on loopback.
func Reachable(addr string) string {
	host, port, err := net.SplitHostPort(addr)
	if ip := net.ParseIP(host); err == nil && (host == "" || ip.IsUnspecified()) {
		return net.JoinHostPort("localhost", port)
	}
	return addr
}
