package node

import (
	"bufio"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// mountInfo lists the mounts of a process on Linux; see proc(5).
const mountInfo = "/proc/self/mountinfo"

// isMountPoint reports whether the file at path is itself a mount point, as in containers into which a
// single file is mounted. Such a mount always shows the same inode. If the file is replaced by
// renaming a new one, as editors and most tools do, the container never sees the new file.
func isMountPoint(path string, mounts io.Reader) bool {
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

// unescapeMount decodes a path of mountinfo, in which whitespace is written as \040.
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

// checkBindMount logs a warning if changes of a file may not be visible.
func (n *Node) checkBindMount(path string) {
	f, err := os.Open(mountInfo)
	if err != nil {
		return // not Linux
	}
	defer f.Close()
	if isMountPoint(path, f) {
		n.log.Warn().Str("file", path).Msg("config file is a bind mount, in which a replaced file is not visible; mount its directory")
	}
}
