package node

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"net"
	"net/http"
	"path/filepath"
	"runtime"
	"time"

	"github.com/weir-proxy/weir/proxy/admin"
)

// livenessRetry is the interval between attempts to open a socket that another process has.
const livenessRetry = time.Second

// livenessName returns the name of the socket on which a weir that was started with that file
// answers liveness checks. It is in the abstract namespace: it belongs to the network namespace (of
// a container, for example), needs no directory to write to, and disappears with the process. Only
// Linux has it; elsewhere the name is "".
func livenessName(path string) string {
	whole, err := filepath.Abs(path)
	if err != nil || runtime.GOOS != "linux" {
		return ""
	}
	sum := sha256.Sum256([]byte(whole))
	return "@weir/" + hex.EncodeToString(sum[:12])
}

// serveLiveness answers liveness checks until ctx is done. The socket can be found even if the
// admin listener of the file has changed since the start. While another process with the same file
// has the socket, that one answers.
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
	s := &http.Server{ReadHeaderTimeout: connectTimeout, Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Write([]byte("ok\n"))
	})}
	defer context.AfterFunc(ctx, func() { s.Close() })()
	_ = s.Serve(l) // until it is closed
}

// Alive checks the weir that was started with that file. It returns an error if there is none, or
// if it does not answer.
func Alive(ctx context.Context, path string) error {
	name := livenessName(path)
	if name == "" {
		return net.ErrClosed
	}
	t := &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", name)
	}}
	return admin.Client{Address: "http://weir", HTTP: &http.Client{Transport: t}}.Healthz(ctx)
}
