package cli

import (
	"cmp"
	"fmt"
	"io"
	"runtime"
	"runtime/debug"

	"github.com/alecthomas/kong"

	"github.com/weir-proxy/weir/proxy/node"
)

type versionCommand struct {
	JSON bool `name:"json" help:"Print JSON, with the date of the build and the platform."`
}

// Run prints the version and the build information.
func (c versionCommand) Run(w Env) error {
	b := readBuild()
	if !c.JSON {
		return printBuild(w.Stdout, b)
	}
	return printJSON(w, struct {
		Version string `json:"version"`
		Commit  string `json:"commit"`
		Date    string `json:"date,omitempty"` // when the commit was made
		Go      string `json:"go"`
		OS      string `json:"os"`
		Arch    string `json:"arch"`
	}{b.Version, b.Commit, buildSetting("vcs.time", date), b.Go, runtime.GOOS, runtime.GOARCH}, nil)
}

// A versionFlag is the flag --version, which does the same as the command.
type versionFlag bool

// BeforeReset implements kong's hook: the version is printed, and nothing else done.
func (versionFlag) BeforeReset(app *kong.Kong) error {
	err := printBuild(app.Stdout, readBuild())
	app.Exit(exitOK)
	return err
}

// The version, the revision and the date of the commit as set by the linker, for builds outside a
// repository: -X github.com/weir-proxy/weir/proxy/cli.version=v1.2.3. They may be empty.
var version, revision, date string

func printBuild(out io.Writer, b node.Build) error {
	_, err := fmt.Fprintf(out, "weir %s (commit %s, %s)\n", b.Version, b.Commit, b.Go)
	return err
}

// readBuild returns the build information of the binary.
func readBuild() node.Build {
	b := node.Build{Version: "(devel)", Commit: cmp.Or(buildSetting("vcs.revision", revision), "unknown"), Go: runtime.Version()}
	if info, ok := debug.ReadBuildInfo(); ok {
		b.Version = cmp.Or(info.Main.Version, b.Version)
	}
	b.Version = cmp.Or(version, b.Version)
	return b
}

// buildSetting returns what the linker was told, or else the setting that the go command recorded.
func buildSetting(key, told string) string {
	info, ok := debug.ReadBuildInfo()
	if told != "" || !ok {
		return told
	}
	for _, s := range info.Settings {
		if s.Key == key {
			return s.Value
		}
	}
	return ""
}
