package upstream

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"time"

	"github.com/weir-proxy/weir/proxy/http1"
)

// maxFields is how many lines the header of a response may have.
const maxFields = 1024

// http1Transport is the connections of HTTP/1.1 to the targets of one pool.
type http1Transport struct {
	client http1.Client
	pools  map[targetURL]*http1.Pool
	pools1 []*http1.Pool // by the number of the backend
}

// A targetURL is where a target is, as a request's URL says it.
type targetURL struct{ scheme, host string }

func newHTTP1(c Config, members []*backend) *http1Transport {
	o := &http1Transport{
		client: http1.Client{
			Limits:         http1.Limits{Head: maxHeader, Fields: maxFields},
			ConnectTimeout: orElse(c.Connect, defaultConnect), TLSHandshakeTimeout: c.TLSTimeout,
			ResponseTimeout: orElse(c.Response, defaultResponse), BodyTimeout: c.Idle,
			ExpectContinueTimeout: continueAfter, MaxIdleConns: maxIdlePerTarget, IdleConnTimeout: idleTimeout,
		},
		pools: map[targetURL]*http1.Pool{},
	}
	dialer := net.Dialer{KeepAlive: 15 * time.Second, Resolver: c.Resolver}
	for _, m := range members {
		at := targetURL{m.scheme, m.host}
		if p := o.pools[at]; p != nil {
			o.pools1 = append(o.pools1, p)
			continue
		}
		e := http1.Endpoint{Network: "tcp", Address: m.dialled(), Dial: dialer.DialContext}
		if m.socket != "" {
			e.Network, e.Address = "unix", m.socket
		}
		if m.scheme == "https" {
			e.TLS = trust(c.TLS, e.Address)
		}
		o.pools[at] = o.client.NewPool(e)
		o.pools1 = append(o.pools1, o.pools[at])
	}
	return o
}

// dialled is the address of t with its port.
func (t *endpoint) dialled() string {
	if _, _, err := net.SplitHostPort(t.host); err == nil {
		return t.host
	}
	port := ":80"
	if t.scheme == "https" {
		port = ":443"
	}
	return t.host + port
}

// trust is how TLS of HTTP/1.1 is spoken with the target at addr.
func trust(c *tls.Config, addr string) *tls.Config {
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	if c != nil {
		config = c.Clone()
	}
	config.NextProtos = []string{"http/1.1"}
	if config.ServerName == "" {
		config.ServerName, _, _ = net.SplitHostPort(addr) // it has been put together above
	}
	return config
}

// of is the connections to m.
func (o *http1Transport) of(m *backend) *http1.Pool { return o.pools1[m.number] }

// CloseIdleConnections closes all connections, those in use after their exchange.
func (o *http1Transport) CloseIdleConnections() {
	for _, p := range o.pools {
		p.Close()
	}
}

// get implements transport.
func (o *http1Transport) get(ctx context.Context, m *backend, path, via string) (status int, err error) {
	call := o.client.NewCall(nil)
	defer call.Release()
	defer abortWith(ctx, call).end()
	head := call.Begin("GET", m.authority, m.base, path)
	head.Add("User-Agent", probeAgent)
	head.Add("Via", via)
	if err := o.of(m).Send(call); err != nil {
		return 0, err
	}
	_, err = io.CopyN(io.Discard, call.Body(), maxProbe)
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return call.Response.Status, err
}
