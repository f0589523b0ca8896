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

// livenessRetry is when a socket is tried again that another weir has.
const livenessRetry = time.Second

// livenessName is the socket on which a weir that was started with that file says that
// it lives: a name in the network namespace (of a container, say) and no file, so that
// it needs no directory to write to and is gone with the process. Only Linux has such
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
	s := &http.Server{ReadHeaderTimeout: connectTimeout, Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
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
	return admin.Client{Address: "http://weir", HTTP: &http.Client{Transport: t}}.Healthz(ctx)
}
