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

// maxFields is the maximum number of field lines in the head of a response.
const maxFields = 1024

// An http1Transport holds the HTTP/1.1 connections to the targets of one pool.
type http1Transport struct {
	client       http1.Client
	pools        map[poolKey]*http1.Pool
	poolByNumber []*http1.Pool // indexed by backend.number
}

// A poolKey identifies the connections to one address.
type poolKey struct{ scheme, host string }

func newHTTP1(c Config, members []*backend) *http1Transport {
	o := &http1Transport{
		client: http1.Client{
			Limits:         http1.Limits{Head: maxHeader, Fields: maxFields},
			ConnectTimeout: orDefault(c.ConnectTimeout, defaultConnect), TLSHandshakeTimeout: c.TLSHandshakeTimeout,
			ResponseTimeout: orDefault(c.ResponseTimeout, defaultResponse), BodyTimeout: c.BodyTimeout,
			ExpectContinueTimeout: expectContinueTimeout, MaxIdleConns: maxIdlePerTarget, IdleConnTimeout: idleTimeout,
		},
		pools: map[poolKey]*http1.Pool{},
	}
	dialer := net.Dialer{KeepAlive: 15 * time.Second, Resolver: c.Resolver}
	for _, m := range members {
		at := poolKey{m.scheme, m.host}
		if p := o.pools[at]; p != nil {
			o.poolByNumber = append(o.poolByNumber, p)
			continue
		}
		e := http1.Endpoint{Network: "tcp", Address: m.dialAddress(), Dial: dialer.DialContext}
		if m.socket != "" {
			e.Network, e.Address = "unix", m.socket
		}
		if m.scheme == "https" {
			e.TLS = tlsConfigFor(c.TLS, e.Address)
		}
		o.pools[at] = o.client.NewPool(e)
		o.poolByNumber = append(o.poolByNumber, o.pools[at])
	}
	return o
}

// dialAddress returns the host and port of e.
func (e *endpoint) dialAddress() string {
	if _, _, err := net.SplitHostPort(e.host); err == nil {
		return e.host
	}
	port := ":80"
	if e.scheme == "https" {
		port = ":443"
	}
	return e.host + port
}

// tlsConfigFor returns the TLS configuration for HTTP/1.1 connections to addr.
func tlsConfigFor(c *tls.Config, addr string) *tls.Config {
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	if c != nil {
		config = c.Clone()
	}
	config.NextProtos = []string{"http/1.1"}
	config.ClientSessionCache = tls.NewLRUClientSessionCache(0) // resumption costs less than a full handshake
	if config.ServerName == "" {
		config.ServerName, _, _ = net.SplitHostPort(addr) // addr always has a port, see dialAddress
	}
	return config
}

// poolOf returns the connections to m.
func (h *http1Transport) poolOf(m *backend) *http1.Pool { return h.poolByNumber[m.number] }

// CloseIdleConnections closes all idle connections. Connections in use are closed after
// their exchange.
func (h *http1Transport) CloseIdleConnections() {
	for _, p := range h.pools {
		p.Close()
	}
}

// probe implements transport.
func (h *http1Transport) probe(ctx context.Context, m *backend, path, via string) (status int, err error) {
	call := h.client.NewCall(nil)
	defer call.Release()
	defer abortOnDone(ctx, call).end()
	head := call.Begin("GET", m.authority, m.basePath, path)
	head.Add("User-Agent", probeUserAgent)
	head.Add("Via", via)
	if err := h.poolOf(m).Send(call); err != nil {
		return 0, err
	}
	_, err = io.CopyN(io.Discard, call.Body(), maxProbeBody)
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return call.Response.Status, err
}
