// Package ratelimit makes Weir take the place of envoyproxy/ratelimit where a control plane starts that:
// it reads the environment that ratelimit has, and gets limits from an xDS server as ratelimit does.
//
// Promised: limits are those that convert.Convert makes of them. A configuration that cannot be served is
// refused with the reason (a NACK), and the one before is served on. While the xDS server cannot be
// reached, Weir serves what it got last.
package ratelimit

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/weir-proxy/weir/proxy/config"
	"github.com/weir-proxy/weir/proxy/convert"
	"github.com/weir-proxy/weir/proxy/protobuf"
)

// Name is what the configuration is called in problems.
const Name = "environment"

// nothing are the limits before there are some: a configuration needs a route.
const nothing = "routes:\n  - {name: no-limits, match: {domain: none, descriptor: {none: none}}}\n"

// A Service serves limits of an xDS server.
type Service struct {
	settings Settings
	ready    atomic.Bool            // what /healthcheck says
	limits   atomic.Pointer[[]byte] // YAML
}

// NewService returns a Service without limits.
func NewService(s Settings) *Service {
	made, limits := &Service{settings: s}, []byte(nothing)
	made.limits.Store(&limits)
	return made
}

// Load returns the configuration of the machine with the limits.
func (s *Service) Load() (*config.Config, error) { return config.LoadText(Name, s.text()) }

func (s *Service) text() []byte { return slices.Concat(s.settings.Machine, *s.limits.Load()) }

// Run gets limits until ctx is done. Weir is healthy from now on, or when it has limits, until then. Reload
// makes it serve what Load returns.
func (s *Service) Run(ctx context.Context, log zerolog.Logger, reload func(context.Context) error) {
	s.ready.Store(!s.settings.NeedsLimits)
	client := &Client{Server: s.settings.XDS, Log: log, Serve: func(ctx context.Context, resources [][]byte) error {
		differences, err := s.serve(ctx, resources, reload)
		for _, what := range differences {
			log.Warn().Str("problem", what).Msg("limits differ from what they are in ratelimit")
		}
		return err
	}}
	client.Run(ctx)
	s.ready.Store(false)
}

// serve makes Weir serve resources, and returns what is different in them.
func (s *Service) serve(ctx context.Context, resources [][]byte,
	reload func(context.Context) error) (differences []string, err error) {
	limits, differences, err := convertResources(resources)
	if err != nil {
		return nil, err
	}
	before := s.limits.Swap(&limits)
	if err := reload(ctx); err != nil {
		s.limits.Store(before)
		return nil, err
	}
	s.ready.Store(true)
	return differences, nil
}

// convertResources returns the limits of resources as YAML of Weir, and what is different in them.
func convertResources(resources [][]byte) (limits []byte, differences []string, err error) {
	var file bytes.Buffer // of several documents; JSON is YAML
	encoder := json.NewEncoder(&file)
	encoder.SetEscapeHTML(false)
	limited := false
	for _, r := range resources {
		data, err := value(r)
		var d domain
		if err == nil {
			err = d.unmarshal(data)
		}
		if err != nil {
			return nil, nil, err
		}
		limited = limited || d.limits()
		file.WriteString("---\n")
		if err := encoder.Encode(d); err != nil {
			return nil, nil, err
		}
	}
	if !limited {
		return []byte(nothing), nil, nil
	}
	result, err := convert.Convert("ratelimit", "limits", &file)
	if fault, ok := errors.AsType[*convert.Error](err); ok {
		return nil, nil, errors.New(fault.What + "; " + fault.Expected) // nobody sees the file
	}
	for _, n := range result.Notes {
		if n.Line > 0 { // of the others all limits have one
			differences = append(differences, n.What)
		}
	}
	return result.Limits, differences, err
}

// healthTimeout is the time for a request.
const healthTimeout = 5 * time.Second

// ServeHealth answers /healthcheck until stop is called: 200 while Weir is ready, otherwise 500.
func (s *Service) ServeHealth() (stop func(), err error) {
	l, err := net.Listen("tcp", s.settings.Health)
	if err != nil {
		return nil, err
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthcheck", func(w http.ResponseWriter, _ *http.Request) {
		if !s.ready.Load() {
			w.WriteHeader(http.StatusInternalServerError)
			return
		}
		w.Write([]byte("OK"))
	})
	server := &http.Server{Handler: mux, ReadHeaderTimeout: healthTimeout, ReadTimeout: healthTimeout,
		WriteTimeout: healthTimeout}
	go server.Serve(l)
	return func() { server.Close() }, nil
}

// Settings is the environment of envoyproxy/ratelimit.
type Settings struct {
	XDS         Server
	Health      string // address on which /healthcheck is answered
	NeedsLimits bool   // to be healthy
	LogLevel    string // as weir run --log-level
	// Machine is what Weir is configured with beside limits.
	Machine []byte
}

// A Server is an xDS server.
type Server struct {
	Address       string
	Node          string // what this client is called there
	TLS           bool
	CA, Cert, Key string // files; "" for none
	Name          string // in the certificate of the server; "" for that in Address
	MaxMessage    int    // bytes; 0 for the default
}

// An environment reads variables, and collects what is wrong with them.
type environment struct {
	look     func(name string) string
	problems []error
}

// wrong records a problem of a variable.
func (e *environment) wrong(name, what string) {
	e.problems = append(e.problems, fmt.Errorf("%s=%s: %s", name, e.look(name), what))
}

// is reports whether a variable is true.
func (e *environment) is(name string) bool {
	text := e.look(name)
	if text == "" {
		return false
	}
	is, err := strconv.ParseBool(text)
	if err != nil {
		e.wrong(name, "is not true or false")
	}
	return is
}

// address returns HOST:PORT of two variables.
func (e *environment) address(host, port, otherwise string) string {
	p := cmp.Or(e.look(port), otherwise)
	if n, err := strconv.ParseUint(p, 10, 16); err != nil || n == 0 {
		e.wrong(port, "is not a port")
	}
	return net.JoinHostPort(cmp.Or(e.look(host), "0.0.0.0"), p)
}

// unsupported records variables that ask for what Weir has not.
func (e *environment) unsupported() {
	for name, fine := range map[string]string{
		"CONFIG_TYPE": "GRPC_XDS_SOTW", "BACKEND_TYPE": "redis", "GRPC_UDS": "", "REDIS_PERSECOND": "false",
		"QUOTA_MODE":                           "false",
		"REDIS_TLS_SKIP_HOSTNAME_VERIFICATION": "false", "GRPC_CLIENT_TLS_SAN": "", "MERGE_DOMAIN_CONFIG": "false",
	} {
		if text := e.look(name); text != "" && !strings.EqualFold(text, fine) {
			e.wrong(name, "is not supported; leave it out or write "+strconv.Quote(fine))
		}
	}
	if e.look("CONFIG_TYPE") == "" {
		e.wrong("CONFIG_TYPE", "is not supported: a configuration in files; write it as one of Weir with weir convert "+
			"ratelimit FILE, and run weir")
	}
}

// Read reads the settings from environment variables, of which look returns "" for one that is not
// there. Its error has all problems.
func Read(look func(name string) string) (Settings, error) {
	e := &environment{look: look}
	e.unsupported()
	most, err := strconv.ParseUint(cmp.Or(e.look("XDS_CLIENT_MAX_MSG_SIZE_IN_BYTES"), "0"), 10, 31)
	if err != nil {
		e.wrong("XDS_CLIENT_MAX_MSG_SIZE_IN_BYTES", "is not a size")
	}
	s := Settings{
		XDS: Server{
			Address: cmp.Or(e.look("CONFIG_GRPC_XDS_SERVER_URL"), "localhost:18000"),
			Node:    cmp.Or(e.look("CONFIG_GRPC_XDS_NODE_ID"), "default"),
			TLS:     e.is("CONFIG_GRPC_XDS_SERVER_USE_TLS"), CA: look("CONFIG_GRPC_XDS_SERVER_TLS_CACERT"),
			Cert: look("CONFIG_GRPC_XDS_CLIENT_TLS_CERT"),
			Key:  look("CONFIG_GRPC_XDS_CLIENT_TLS_KEY"), Name: look("CONFIG_GRPC_XDS_SERVER_TLS_SAN"),
			MaxMessage: int(most),
		},
		Health: e.address("HOST", "PORT", "8080"), NeedsLimits: !e.is("FORCE_START_WITHOUT_INITIAL_CONFIG"),
		LogLevel: e.logLevel(),
	}
	s.Machine = []byte(e.machine())
	return s, errors.Join(e.problems...)
}

// logLevel returns LOG_LEVEL as Weir has it.
func (e *environment) logLevel() string {
	level := map[string]string{
		"trace": "debug", "debug": "debug", "info": "info", "warn": "warn", "warning": "warn", "error": "error",
		"fatal": "error", "panic": "error",
	}[strings.ToLower(cmp.Or(e.look("LOG_LEVEL"), "warn"))]
	if level == "" {
		e.wrong("LOG_LEVEL", "is not a level; write debug, info, warn or error")
	}
	return level
}

// The messages of envoy.service.discovery.v3 and ratelimit.config.ratelimit.v3. Their Go packages would bring
// all configuration types of Envoy.

// typeURL is the type of the resources.
const typeURL = "type.googleapis.com/ratelimit.config.ratelimit.v3.RateLimitConfig"

// A discoveryRequest is a DiscoveryRequest: a subscription, an ACK, or a NACK with an error.
type discoveryRequest struct {
	version string // 1: the last one that is served
	node    string // 2.1
	nonce   string // 5: that of the response
	fault   string // 6.2
}

func (r *discoveryRequest) marshal() (b []byte) {
	b = protobuf.AppendText(b, 1, r.version)
	b = protobuf.AppendMessage(b, 2, protobuf.AppendText(nil, 1, r.node))
	b = protobuf.AppendText(b, 4, typeURL)
	b = protobuf.AppendText(b, 5, r.nonce)
	if r.fault != "" {
		status := protobuf.AppendNumber(nil, 1, invalidArgument)
		b = protobuf.AppendMessage(b, 6, protobuf.AppendText(status, 2, r.fault))
	}
	return b
}

// invalidArgument is the code of a configuration that is refused.
const invalidArgument = 3

// A discoveryResponse is a DiscoveryResponse.
type discoveryResponse struct {
	version   string   // 1
	resources [][]byte // 2
	nonce     string   // 5
	fault     error    // why it cannot be read
}

// unmarshal decodes a response. The nonce of one with faults is read as well: it is in the NACK.
func (r *discoveryResponse) unmarshal(data []byte) {
	*r = discoveryResponse{}
	r.fault = protobuf.Decode(data, protobuf.Fields{
		1: &r.version,
		2: func(b []byte) error {
			r.resources = append(r.resources, b)
			return nil
		},
		5: &r.nonce,
	}, nil)
}

// value returns the value of a resource, which is an Any.
func value(resource []byte) (data []byte, err error) {
	var kind string
	err = protobuf.Decode(resource, protobuf.Fields{1: &kind, 2: func(b []byte) error {
		data = b
		return nil
	}}, nil)
	if err == nil && kind != typeURL {
		err = fmt.Errorf("a resource of type %q is not a configuration of limits", kind)
	}
	return data, err
}

// A domain is a RateLimitConfig, in the form of a configuration file of ratelimit.
type domain struct {
	Domain      string       `json:"domain"`
	Descriptors []descriptor `json:"descriptors,omitempty"`
	Unknown     unknown      `json:"unknown_fields,omitempty"`
}

// A descriptor is a RateLimitDescriptor.
type descriptor struct {
	Key         string       `json:"key"`
	Value       string       `json:"value,omitempty"`
	Policy      *policy      `json:"rate_limit,omitempty"`
	Descriptors []descriptor `json:"descriptors,omitempty"`
	Shadow      bool         `json:"shadow_mode,omitempty"`
	Quota       bool         `json:"quota_mode,omitempty"`
	Unknown     unknown      `json:"unknown_fields,omitempty"`
}

// A policy is a RateLimitPolicy.
type policy struct {
	Unit      string     `json:"unit,omitempty"`
	Count     uint32     `json:"requests_per_unit"`
	Unlimited bool       `json:"unlimited,omitempty"`
	Name      string     `json:"name,omitempty"`
	Replaces  []replaced `json:"replaces,omitempty"`
	Unknown   unknown    `json:"unknown_fields,omitempty"`
}

// A replaced is a RateLimitReplace.
type replaced struct {
	Name string `json:"name"`
}

// limits reports whether a rule of the domain has a limit.
func (d *domain) limits() bool { return slices.ContainsFunc(d.Descriptors, descriptor.limits) }

// limits reports whether d, or a descriptor in it, has a limit.
func (d descriptor) limits() bool {
	return d.Policy != nil && !d.Policy.Unlimited || slices.ContainsFunc(d.Descriptors, descriptor.limits)
}

// An unknown is the numbers of fields that are not known, for a note.
type unknown []int32

func (u *unknown) add(number protowire.Number) { *u = append(*u, int32(number)) }

func (d *domain) unmarshal(data []byte) error {
	return protobuf.Decode(data, protobuf.Fields{
		1: nil, // the name of the resource
		2: &d.Domain,
		3: func(b []byte) error { return appendDescriptor(&d.Descriptors, b) },
	}, d.Unknown.add)
}

// appendDescriptor decodes a RateLimitDescriptor.
func appendDescriptor(all *[]descriptor, data []byte) error {
	var d descriptor
	err := protobuf.Decode(data, protobuf.Fields{
		1: &d.Key,
		2: &d.Value,
		3: func(b []byte) error {
			d.Policy = &policy{}
			return d.Policy.unmarshal(b)
		},
		4: func(b []byte) error { return appendDescriptor(&d.Descriptors, b) },
		5: &d.Shadow,
		6: nil, // detailed_metric
		7: &d.Quota,
	}, d.Unknown.add)
	*all = append(*all, d)
	return err
}

// unitName returns the name of a RateLimitUnit.
func unitName(unit uint64) string {
	names := []string{"", "second", "minute", "hour", "day", "month", "year", "week"}
	if unit >= uint64(len(names)) {
		return fmt.Sprint(unit)
	}
	return names[unit]
}

func (p *policy) unmarshal(data []byte) error {
	var unit, count uint64
	err := protobuf.Decode(data, protobuf.Fields{
		1: &unit,
		2: &count,
		3: &p.Unlimited,
		4: &p.Name,
		5: func(b []byte) error {
			var r replaced
			err := protobuf.Decode(b, protobuf.Fields{1: &r.Name}, nil)
			p.Replaces = append(p.Replaces, r)
			return err
		},
	}, p.Unknown.add)
	p.Unit, p.Count = unitName(unit), uint32(count)
	return err
}
