package node

import (
	"bufio"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// mountInfo is where Linux lists the mounts that a process sees; see proc(5).
const mountInfo = "/proc/self/mountinfo"

// mounted reports whether the file at path is a mount of its own, as containers have
// it that are given a single file. Such a mount shows one inode for ever: a file that
// is renamed into its place outside, which is how editors and most tools write, is
// never seen.
func mounted(path string, mounts io.Reader) bool {
	whole, err := filepath.Abs(path)
	if err != nil {
		return false
	}
	lines := bufio.NewScanner(mounts)
	for lines.Scan() {
		fields := strings.Fields(lines.Text())
		if len(fields) > 4 && unescapeMount(fields[4]) == whole {
			return true
		}
	}
	return false
}

// unescapeMount is a path of mountinfo, where whitespace and their like are
// \040.
func unescapeMount(text string) string {
	var b strings.Builder
	for i := 0; i < len(text); i++ {
		if text[i] == '\\' && i+3 < len(text) {
			if n, err := strconv.ParseUint(text[i+1:i+4], 8, 8); err == nil {
				b.WriteByte(byte(n))
				i += 3
				continue
			}
		}
		b.WriteByte(text[i])
	}
	return b.String()
}

// watchable warns if changes of a file will hardly be noticed.
func (n *Node) watchable(path string) {
	f, err := os.Open(mountInfo)
	if err != nil {
		return // no Linux
	}
	defer f.Close()
	if mounted(path, f) {
		n.log.Warn().Str("file", path).Msg("config file is a bind mount, in which a replaced file is not visible; mount its directory")
	}
}
