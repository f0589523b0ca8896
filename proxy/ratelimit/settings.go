package ratelimit

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
)

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

// errUnsupported reports that Weir has not what a variable asks for.
var errUnsupported = errors.New("is not supported")

// An environment reads variables, and collects what is wrong with them.
type environment struct {
	look     func(name string) string
	problems []error
}

// wrong records a problem of a variable.
func (e *environment) wrong(name string, err error) {
	e.problems = append(e.problems, fmt.Errorf("%s=%s: %w", name, e.look(name), err))
}

// text returns a variable, or its default.
func (e *environment) text(name, otherwise string) string {
	return cmp.Or(e.look(name), otherwise)
}

// is reports whether a variable is true.
func (e *environment) is(name string) bool {
	text := e.look(name)
	if text == "" {
		return false
	}
	is, err := strconv.ParseBool(text)
	if err != nil {
		e.wrong(name, errors.New("is not true or false"))
	}
	return is
}

// address returns HOST:PORT of two variables.
func (e *environment) address(host, port, otherwise string) string {
	p := e.text(port, otherwise)
	if n, err := strconv.ParseUint(p, 10, 16); err != nil || n == 0 {
		e.wrong(port, errors.New("is not a port"))
	}
	return net.JoinHostPort(e.text(host, "0.0.0.0"), p)
}

// unsupported records variables that ask for what Weir has not.
func (e *environment) unsupported() {
	for name, fine := range map[string]string{
		"CONFIG_TYPE": "GRPC_XDS_SOTW", "BACKEND_TYPE": "redis", "GRPC_UDS": "", "REDIS_PERSECOND": "false", "QUOTA_MODE": "false",
		"REDIS_TLS_SKIP_HOSTNAME_VERIFICATION": "false", "GRPC_CLIENT_TLS_SAN": "", "MERGE_DOMAIN_CONFIG": "false",
	} {
		if text := e.look(name); text != "" && !strings.EqualFold(text, fine) {
			e.wrong(name, fmt.Errorf("%w; leave it out or write %q", errUnsupported, fine))
		}
	}
	if e.look("CONFIG_TYPE") == "" {
		e.wrong("CONFIG_TYPE", fmt.Errorf("%w: a configuration in files; write it as one of Weir with weir convert ratelimit FILE, and run weir", errUnsupported))
	}
}

// Read reads the settings from environment variables, of which look returns "" for one that is not
// there. Its error has all problems.
func Read(look func(name string) string) (Settings, error) {
	e := &environment{look: look}
	e.unsupported()
	most, err := strconv.ParseUint(e.text("XDS_CLIENT_MAX_MSG_SIZE_IN_BYTES", "0"), 10, 31)
	if err != nil {
		e.wrong("XDS_CLIENT_MAX_MSG_SIZE_IN_BYTES", errors.New("is not a size"))
	}
	s := Settings{
		XDS: Server{
			Address: e.text("CONFIG_GRPC_XDS_SERVER_URL", "localhost:18000"), Node: e.text("CONFIG_GRPC_XDS_NODE_ID", "default"),
			TLS: e.is("CONFIG_GRPC_XDS_SERVER_USE_TLS"), CA: look("CONFIG_GRPC_XDS_SERVER_TLS_CACERT"), Cert: look("CONFIG_GRPC_XDS_CLIENT_TLS_CERT"),
			Key: look("CONFIG_GRPC_XDS_CLIENT_TLS_KEY"), Name: look("CONFIG_GRPC_XDS_SERVER_TLS_SAN"), MaxMessage: int(most),
		},
		Health: e.address("HOST", "PORT", "8080"), NeedsLimits: !e.is("FORCE_START_WITHOUT_INITIAL_CONFIG"), LogLevel: e.logLevel(),
	}
	s.Machine = []byte(e.machine())
	return s, errors.Join(e.problems...)
}

// logLevel returns LOG_LEVEL as Weir has it.
func (e *environment) logLevel() string {
	switch level := strings.ToLower(e.text("LOG_LEVEL", "warn")); level {
	case "debug", "info", "warn", "error":
		return level
	case "trace":
		return "debug"
	case "warning":
		return "warn"
	case "fatal", "panic":
		return "error"
	}
	e.wrong("LOG_LEVEL", errors.New("is not a level; write debug, info, warn or error"))
	return "warn"
}
