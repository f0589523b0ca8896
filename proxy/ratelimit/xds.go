package ratelimit

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"time"

	"github.com/rs/zerolog"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"
)

const (
	subscribeMethod = "/envoy.service.discovery.v3.AggregatedDiscoveryService/StreamAggregatedResources"
	// After a failure the client waits for firstWait, then for twice as long each time.
	firstWait = time.Second
	maxWait   = 30 * time.Second
	// keepAlive is the interval of pings; servers of grpc-go end connections with more than one in five minutes.
	keepAlive = 6 * time.Minute
)

// A Client gets limits from an xDS server (aggregated, state of the world).
type Client struct {
	Server Server
	Log    zerolog.Logger
	// Serve makes Weir serve resources, all that there are. If it returns an error, Weir serves what it served
	// before.
	Serve func(ctx context.Context, resources [][]byte) error
}

// Run gets limits until ctx is done.
func (c *Client) Run(ctx context.Context) {
	wait := firstWait
	var served string // the version
	for ctx.Err() == nil {
		began := time.Now()
		err := c.subscribe(ctx, &served)
		if ctx.Err() != nil {
			return
		}
		if time.Since(began) > maxWait {
			wait = firstWait
		}
		c.Log.Warn().Err(err).Str("server", c.Server.Address).Dur("retry_ms", wait).Msg("xds server unreachable")
		select {
		case <-time.After(wait/2 + rand.N(wait/2)):
		case <-ctx.Done():
		}
		wait = min(2*wait, maxWait)
	}
}

// subscribe gets limits over one connection until it fails. Served is the version that Weir serves.
func (c *Client) subscribe(ctx context.Context, served *string) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	conn, err := c.connect()
	if err != nil {
		return err
	}
	defer conn.Close()
	stream, err := conn.NewStream(ctx, &grpc.StreamDesc{ClientStreams: true, ServerStreams: true}, subscribeMethod)
	if err != nil {
		return err
	}
	request := discoveryRequest{node: c.Server.Node, version: *served}
	for {
		if err := stream.SendMsg(&request); err != nil {
			return errors.Join(err, stream.RecvMsg(&discoveryResponse{})) // why the stream has ended
		}
		var response discoveryResponse
		if err := stream.RecvMsg(&response); err != nil {
			return err
		}
		request.nonce, request.fault = response.nonce, ""
		err := response.fault
		if err == nil {
			err = c.Serve(ctx, response.resources)
		}
		if err != nil {
			c.Log.Error().Err(err).Str("version", response.version).Msg("limits refused")
			request.fault = err.Error()
			continue
		}
		c.Log.Info().Str("version", response.version).Int("domains", len(response.resources)).Msg("limits served")
		request.version, *served = response.version, response.version
	}
}

// connect returns a connection to the server. Certificates are read anew for each.
func (c *Client) connect() (*grpc.ClientConn, error) {
	secure := insecure.NewCredentials()
	if c.Server.TLS {
		own, err := c.Server.tlsConfig()
		if err != nil {
			return nil, err
		}
		secure = credentials.NewTLS(own)
	}
	calls := []grpc.CallOption{grpc.ForceCodec(codec{})}
	if c.Server.MaxMessage > 0 {
		calls = append(calls, grpc.MaxCallRecvMsgSize(c.Server.MaxMessage))
	}
	return grpc.NewClient(c.Server.Address, grpc.WithTransportCredentials(secure), grpc.WithDefaultCallOptions(calls...),
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: keepAlive}))
}

// tlsConfig reads the certificates.
func (s *Server) tlsConfig() (*tls.Config, error) {
	c := &tls.Config{ServerName: s.Name, MinVersion: tls.VersionTLS12}
	if s.CA != "" {
		text, err := os.ReadFile(s.CA)
		if err != nil {
			return nil, err
		}
		if c.RootCAs = x509.NewCertPool(); !c.RootCAs.AppendCertsFromPEM(text) {
			return nil, fmt.Errorf("%s: there is no certificate in this file", s.CA)
		}
	}
	if s.Cert != "" {
		own, err := tls.LoadX509KeyPair(s.Cert, s.Key)
		if err != nil {
			return nil, err
		}
		c.Certificates = []tls.Certificate{own}
	}
	return c, nil
}

// A codec encodes requests and decodes responses.
type codec struct{}

// Marshal implements encoding.Codec.
func (codec) Marshal(v any) ([]byte, error) { return v.(*discoveryRequest).marshal(), nil }

// Unmarshal implements encoding.Codec. A response that is none of limits is refused like limits that are
// wrong, and does not end the stream.
func (codec) Unmarshal(data []byte, v any) error {
	v.(*discoveryResponse).unmarshal(data)
	return nil
}

// Name implements encoding.Codec.
func (codec) Name() string { return "proto" }
