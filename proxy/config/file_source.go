package config

import (
	"errors"
	"os"
	"path/filepath"

	"github.com/weir-proxy/weir/proxy/config/internal/form"
)

// A FileSource has the files of a configuration, by the names that they use for each other.
type FileSource interface {
	// Read returns the content of a file, of which at most most bytes and one more. Its error is
	// ErrForeign if the configuration must not name the file.
	Read(path string, most int64) ([]byte, error)
	// Glob is filepath.Glob.
	Glob(pattern string) ([]string, error)
	// Owner returns whose a file is, whether it exists or not.
	Owner(path string) FileOwner
}

// A FileOwner says whose a file is that a configuration names.
type FileOwner uint8

const (
	OfConfig  FileOwner = iota // it belongs to the configuration
	OfMachine                  // the machine has it for such configurations: a certificate, for example
	Foreign                    // the configuration must not name it
)

// ErrForeign is the error for all files of a machine that a configuration from another one must not name,
// whether they exist or not, which its sender must not learn.
var ErrForeign = errors.New("not part of the pushed configuration, and not in the directory of this machine's own file")

// diskFiles reads the files of this machine.
type diskFiles struct{}

// Read implements FileSource.
func (diskFiles) Read(path string, most int64) ([]byte, error) { return form.ReadFile(path, most) }

// Glob implements FileSource.
func (diskFiles) Glob(pattern string) ([]string, error) { return filepath.Glob(pattern) }

// Owner implements FileSource.
func (diskFiles) Owner(string) FileOwner { return OfConfig }

// Visit reads the file called name and all files that it includes or whose content belongs to it, such as
// those of lists, from s, and returns the problems of that. It does not validate the configuration. ok is
// false if the file itself cannot be decoded.
func Visit(s FileSource, name string) (problems Problems, ok bool) {
	r := newLoader(os.LookupEnv)
	r.source = s
	main := r.open(name, "")
	if main == nil {
		return r.failed(), false
	}
	r.include(name, main)
	for _, name := range form.SortedKeys(main.Lists) {
		r.attach(&main.Lists[name].File, maxList)
	}
	for _, name := range form.SortedKeys(main.Prices) {
		r.attach(&main.Prices[name].File, maxList)
	}
	for _, name := range form.SortedKeys(main.Limits) {
		r.attachPlans(main.Limits[name])
	}
	for _, route := range main.Routes {
		if route != nil {
			r.attachPlans(route.Limits...)
		}
	}
	return r.failed(), true
}

// LoadFrom is like Load for a configuration from another machine, whose file in s is called name. The
// sections listen, admin, store, redis, reload, access_log and traces are taken from own, the
// configuration of this machine, if it does not have them. Files are relative to the folder of own.
// Problems do not show the values of environment variables. Files of the result has the names of all
// files that were read.
func LoadFrom(s FileSource, name string, own *Config) (*Config, error) {
	r := newLoader(os.LookupEnv)
	r.HideVariables()
	r.CountTogether()
	r.home = filepath.Dir(own.Files[0])
	r.source = s
	main := r.open(name, "")
	if main == nil {
		return nil, r.failed()
	}
	if !r.include(name, main) || r.Exhausted() { // whatever was read of it would cost what the bound is to spare
		return nil, r.failed()
	}
	r.inherit(main, own.form)
	return r.compile(main)
}

// Names reports whether c names the file at path, which is cleaned.
func (c *Config) Names(path string) bool { return c.own[path] }

// inherit copies sections that belong to the machine from own to main, unless main has
// them.
func (r *loader) inherit(main, own *file) {
	if !r.Given(&main.Listen) {
		main.Listen = own.Listen
	}
	if !r.Given(&main.Admin) {
		main.Admin = own.Admin
	}
	if !r.Given(&main.Store) {
		main.Store = own.Store
	}
	if !r.Given(&main.Redis) {
		main.Redis = own.Redis
	}
	if !r.Given(&main.Reload) {
		main.Reload = own.Reload
	}
	if !r.Given(&main.AccessLog) {
		main.AccessLog = own.AccessLog
	}
	if !r.Given(&main.Traces) {
		main.Traces = own.Traces
	}
}
