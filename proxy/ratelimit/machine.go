package ratelimit

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	mathrand "math/rand/v2"
	"net"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/rs/zerolog"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"
)

// quote returns a text, or a list of them, for YAML, in which a dollar begins no name of a variable.
func quote[T string | []string](value T) string {
	quoted, _ := json.Marshal(value) // strings can be encoded
	return strings.ReplaceAll(string(quoted), "$", "$$")
}

// machine returns the sections of a configuration that belong to the machine.
func (e *environment) machine() string {
	lines := []string{
		"listen: {http: none, decide: {" + e.listener() + "}}",
		"admin: {" + e.admin() + "}",
		"store: redis",
		"redis: {" + e.redis() + "}",
		"defaults: {" + e.defaults() + "}",
	}
	if e.look("LOG_LEVEL") != "debug" { // ratelimit logs no calls
		lines = append(lines, "access_log: {format: none}")
	}
	if e.is("TRACING_ENABLED") {
		lines = append(lines, "traces: {"+e.traces()+"}")
	}
	return strings.Join(lines, "\n") + "\n"
}

// listener returns the fields of listen.decide.
func (e *environment) listener() string {
	fields := "grpc: " + quote(e.address("GRPC_HOST", "GRPC_PORT", "8081")) + `, secret: "${WEIR_DECIDE_SECRET:-}"`
	// the latter is how Envoy Gateway calls it
	authority := cmp.Or(e.look("GRPC_CLIENT_TLS_CACERT"), e.look("GRPC_SERVER_TLS_CA_CERT"))
	secure := e.is("GRPC_SERVER_USE_TLS")
	if secure {
		fields += ", tls: {cert: " + quote(e.look("GRPC_SERVER_TLS_CERT")) + ", key: " +
			quote(e.look("GRPC_SERVER_TLS_KEY")) + "}"
	}
	if secure && authority != "" {
		return fields + ", client_ca: " + quote(authority)
	}
	return fields + `, trusted: ["0.0.0.0/0", "::/0"]` // whoever reaches it, as ratelimit does
}

// admin returns the fields of the admin listener, which has the metrics. Nobody on the network has its
// token, unless it is given.
func (e *environment) admin() string {
	if !e.is("USE_PROMETHEUS") {
		return `http: "127.0.0.1:9901"`
	}
	if path := e.look("PROMETHEUS_PATH"); path != "" && path != "/metrics" {
		e.wrong("PROMETHEUS_PATH", "is not supported")
	}
	at := cmp.Or(e.look("PROMETHEUS_ADDR"), ":9090")
	if _, _, err := net.SplitHostPort(at); err != nil {
		e.wrong("PROMETHEUS_ADDR", "is not HOST:PORT")
	}
	return "http: " + quote(at) + ", token: " + quote(cmp.Or(e.look("WEIR_ADMIN_TOKEN"), rand.Text()))
}

// defaults returns the fields of defaults.
func (e *environment) defaults() string {
	fields := "headers: none"
	if e.is("LIMIT_RESPONSE_HEADERS_ENABLED") {
		fields = "headers: ietf"
	}
	if e.is("SHADOW_MODE") {
		fields += ", mode: shadow"
	}
	return fields
}

// traces returns the fields of traces.
func (e *environment) traces() string {
	sample, err := strconv.ParseFloat(cmp.Or(e.look("TRACING_SAMPLING_RATE"), "1"), 64)
	if err != nil || sample < 0 || sample > 1 {
		e.wrong("TRACING_SAMPLING_RATE", "is not a number from 0 to 1")
	}
	return "endpoint: " + quote(cmp.Or(e.look("OTEL_EXPORTER_OTLP_ENDPOINT"), "http://localhost:4318")) +
		", service: " + quote(cmp.Or(e.look("TRACING_SERVICE_NAME"), "RateLimit")) +
		", sample: " + quote(strconv.FormatFloat(sample*100, 'f', -1, 64)+"%")
}

// redis returns the fields of redis.
func (e *environment) redis() string {
	if !strings.EqualFold(e.look("REDIS_SOCKET_TYPE"), "tcp") && strings.HasPrefix(e.look("REDIS_URL"), "/") {
		e.wrong("REDIS_SOCKET_TYPE", "is not supported; write tcp, and REDIS_URL=HOST:PORT")
	}
	servers := strings.Split(e.look("REDIS_URL"), ",")
	mode := strings.ToLower(cmp.Or(e.look("REDIS_TYPE"), "single"))
	fields := "mode: " + quote(mode)
	switch mode {
	case "single", "cluster":
	case "sentinel":
		fields += ", master: " + quote(servers[0])
		servers = servers[1:]
		if secret := e.look("REDIS_SENTINEL_AUTH"); secret != "" {
			fields += ", sentinel: {" + login(secret) + "}"
		}
	default:
		e.wrong("REDIS_TYPE", "is not SINGLE, SENTINEL or CLUSTER")
	}
	var addresses []string
	auth, secure := e.look("REDIS_AUTH"), e.is("REDIS_TLS")
	for _, text := range servers {
		u, err := redisURL(text)
		if err != nil {
			e.problems = append(e.problems, errors.New("REDIS_URL: "+err.Error())) // it may have a password
			continue
		}
		addresses, secure = append(addresses, u.Host), secure || u.Scheme == "rediss"
		if password, has := u.User.Password(); has {
			auth = u.User.Username() + ":" + password
		}
	}
	fields += ", addrs: " + quote(addresses)
	if auth != "" {
		fields += ", " + login(auth)
	}
	if secure {
		fields += ", tls: {enabled: true, ca: " + quote(e.look("REDIS_TLS_CACERT")) + ", cert: " +
			quote(e.look("REDIS_TLS_CLIENT_CERT")) + ", key: " + quote(e.look("REDIS_TLS_CLIENT_KEY")) + "}"
	}
	return fields
}

// login returns the fields for USER:PASSWORD, or PASSWORD.
func login(text string) string {
	user, password, both := strings.Cut(text, ":")
	if !both {
		user, password = "", text
	}
	return "username: " + quote(user) + ", password: " + quote(password)
}

// redisURL parses HOST:PORT, redis://USER:PASSWORD@HOST:PORT or rediss://.
func redisURL(text string) (*url.URL, error) {
	if !strings.Contains(text, "://") {
		text = "redis://" + text
	}
	u, err := url.Parse(strings.TrimSpace(text))
	switch {
	case err != nil || u.Host == "" || u.Scheme != "redis" && u.Scheme != "rediss":
		return nil, errors.New("is not HOST:PORT or redis://HOST:PORT")
	case u.Path != "" && u.Path != "/" && u.Path != "/0":
		return nil, errors.New("Weir uses database 0 only; leave out " + u.Path)
	case u.Port() == "":
		u.Host = net.JoinHostPort(u.Hostname(), "6379")
	}
	return u, nil
}

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
		case <-time.After(wait/2 + mathrand.N(wait/2)):
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
	return grpc.NewClient(c.Server.Address, grpc.WithTransportCredentials(secure),
		grpc.WithDefaultCallOptions(calls...),
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
