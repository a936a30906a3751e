// SPDX-License-Identifier: Apache-2.0
#include "permute/plan/measured_plans.h"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cmath>
#include <cstdlib>
#include <iterator>
#include <mutex>
#include <string>

#include "core/text_file.h"

namespace flowk::permute {

namespace {

struct Entry {
  PlanKey key;
  std::string gpu;
  MeasuredTile measured;
};

std::mutex guard;
std::vector<Entry> entries;
std::atomic<uint64_t> version{0};

void add(Entry entry) {
  const std::lock_guard lock(guard);
  const auto found =
      std::find_if(entries.begin(), entries.end(), [&](const Entry& one) { return one.key == entry.key; });
  if (found == entries.end())
    entries.push_back(std::move(entry));
  else
    *found = std::move(entry);
  version.fetch_add(1, std::memory_order_release);
}

// The first line of a file. Each other line has the library's version, the GPU in quotation marks, how many numbers the
// key has, these numbers, the tile, and both times in nanoseconds. Numbers are integers, because every locale writes
// integers alike.
constexpr const char* header = "# flowk plans, format 1: version \"GPU\" count numbers tile modelled_ns measured_ns";

int64_t to_ns(double us) { return std::llround(us * 1000); }

std::string line_of(const Entry& entry) {
  const MeasuredTile& tile = entry.measured;
  std::string line = std::to_string(FLOWK_VERSION) + " \"" + entry.gpu + "\" " + std::to_string(entry.key.num_words);
  for (size_t i = 0; i < entry.key.num_words; ++i) line += ' ' + std::to_string(entry.key.words[i]);
  for (const int64_t number :
       {int64_t{tile.src_choice}, int64_t{tile.dst_choice}, to_ns(tile.modelled_us), to_ns(tile.measured_us)})
    line += ' ' + std::to_string(number);
  return line;
}

// Reads integers. read() returns false if there is none or it is out of bounds.
struct LineReader {
  const char* at;
  bool read(int64_t least, int64_t most, int64_t* value) {
    char* end = nullptr;
    errno = 0;
    *value = std::strtoll(at, &end, 10);
    if (end == at || errno != 0 || *value < least || *value > most) return false;
    at = end;
    return true;
  }
};

// False if the line is not as line_of() writes it.
bool read_line(const std::string& line, int64_t* library_version, Entry* entry) {
  const size_t open = line.find(" \""), close = line.find("\" ", open + 2);
  LineReader version_reader{line.c_str()};
  if (close == std::string::npos || !version_reader.read(0, INT32_MAX, library_version)) return false;
  if (version_reader.at != line.c_str() + open) return false;
  entry->gpu = line.substr(open + 2, close - open - 2);
  if (*library_version != FLOWK_VERSION) return true;  // its numbers may mean something else
  LineReader reader{line.c_str() + close + 2};
  PlanKey& key = entry->key;
  int64_t num_words = 0;
  if (!reader.read(PlanKey::num_fixed_words, static_cast<int64_t>(std::size(key.words)), &num_words)) return false;
  key.num_words = static_cast<size_t>(num_words);
  for (int64_t i = 0; i < num_words; ++i)
    if (!reader.read(INT64_MIN, INT64_MAX, &key.words[i])) return false;
  if (num_words != PlanKey::num_fixed_words + 3 * int64_t{key.rank()}) return false;
  key.set_hash();
  int64_t src_choice = 0, dst_choice = 0, modelled_ns = 0, measured_ns = 0;
  if (!reader.read(-1, INT32_MAX, &src_choice) || !reader.read(-1, INT32_MAX, &dst_choice)) return false;
  if (!reader.read(0, INT64_MAX, &modelled_ns) || !reader.read(0, modelled_ns, &measured_ns)) return false;
  entry->measured = {static_cast<int32_t>(src_choice), static_cast<int32_t>(dst_choice),
                     static_cast<double>(modelled_ns) / 1000, static_cast<double>(measured_ns) / 1000};
  return *reader.at == '\0' && (src_choice < 0) == (dst_choice < 0);
}

}  // namespace

void add_measured_plan(const PlanKey& key, const char* gpu, const MeasuredTile& measured) { add({key, gpu, measured}); }

bool find_measured_plan(const PlanKey& key, MeasuredTile* measured) {
  if (measured_plans_version() == 0) return false;
  const std::lock_guard lock(guard);
  for (const Entry& entry : entries) {
    if (!(entry.key == key)) continue;
    *measured = entry.measured;
    return true;
  }
  return false;
}

uint64_t measured_plans_version() { return version.load(std::memory_order_acquire); }

Status save_measured_plans(const char* path) {
  std::string text = std::string(header) + '\n';
  {
    const std::lock_guard lock(guard);
    for (const Entry& entry : entries) text += line_of(entry) + '\n';
  }
  const File file = open_file(path, "w");
  if (file != nullptr && write_text(file.get(), text)) return {};
  return file_failure("path", path, "cannot be written");
}

Status load_measured_plans(const char* path, const Device& device, const char* gpu, int32_t* num_loaded,
                           int32_t* num_ignored) {
  *num_loaded = *num_ignored = 0;
  const File file = open_file(path, "r");
  if (file == nullptr) return file_failure("path", path, "cannot be read");
  const PlanKey own({}, device);
  std::vector<Entry> found;
  std::string line;
  for (int number = 1; next_line(file.get(), &line); ++number) {
    if (number == 1 && line == header) continue;
    int64_t library_version = 0;
    Entry entry;
    if (number == 1 || !read_line(line, &library_version, &entry))
      return Status::failure(FLOWK_STATUS_INVALID_ARGUMENT,
                             "path = \"%.200s\" has line %d, must be as flowk_plans_save() writes it: %.80s", path,
                             number, line.c_str());
    const bool is_own = library_version == FLOWK_VERSION && entry.gpu == gpu && entry.key.is_of_device(own);
    if (is_own)
      found.push_back(std::move(entry));
    else
      ++*num_ignored;
  }
  if (std::ferror(file.get()) != 0) return file_failure("path", path, "cannot be read");
  *num_loaded = static_cast<int32_t>(found.size());
  for (Entry& entry : found) add(std::move(entry));
  return {};
}

Status load_plans_of_environment(const Device& device) {
  static std::atomic<bool> is_done{false};
  if (is_done.load(std::memory_order_acquire)) return {};
  if (const char* path = std::getenv("FLOWK_PLANS"); path != nullptr && *path != '\0') {
    char gpu[device_name_bytes];
    int32_t num_loaded = 0, num_ignored = 0;
    FLOWK_RETURN_IF_ERROR(current_device_name(&gpu));
    FLOWK_RETURN_IF_ERROR(load_measured_plans(path, device, gpu, &num_loaded, &num_ignored));
  }
  is_done.store(true, std::memory_order_release);
  return {};
}

}  // namespace flowk::permute
