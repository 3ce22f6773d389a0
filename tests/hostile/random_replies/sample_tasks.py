"""Desktop tasks that make desktop-env read every kind of thing that a guest can answer, none of which downloads anything."""

from __future__ import annotations

from typing import Any

HOME, GOOD = "/home/user", "/home/good"
"""Where the guest's files are: those that may be bad, and the same as they should be."""

Getter = dict[str, Any]
Task = dict[str, Any]


def file(name: str, folder: str = HOME) -> Getter:
    """A file of the guest's."""
    return {"type": "vm_file", "path": f"{folder}/{name}", "dest": name if folder == HOME else f"good-{name}"}


def rule(**rules: Any) -> Getter:
    """What is expected."""
    return {"type": "rule", "rules": rules}


def said(command: str = "cat a") -> Getter:
    """What a command prints."""
    return {"type": "vm_command_line", "command": command, "shell": True}


def judged(func: str, result: Getter, expected: Getter | None = None, **options: Any) -> Task:
    """A task without setup."""
    evaluator: dict[str, Any] = {"func": func, "result": result}
    if expected is not None:
        evaluator["expected"] = expected
    if options:
        evaluator["options"] = options
    return {"config": [], "evaluator": evaluator}


def same(func: str, name: str, **options: Any) -> Task:
    """Compares a file with the same one as it should be."""
    return judged(func, file(name), file(name, GOOD), **options)


def steps(*steps: tuple[str, dict[str, Any]]) -> list[dict[str, Any]]:
    """Setup steps."""
    return [{"type": kind, "parameters": parameters} for kind, parameters in steps]


SETUP = steps(
    ("execute", {"command": ["python3", "-c", "print(1)"], "stdout": "said.txt", "stderr": "wrong.txt"}),
    ("command", {"command": "true", "shell": True, "until": {"returncode": 0}}),
    ("launch", {"command": ["socat", "tcp-listen:9222,fork", "tcp:localhost:1337"]}),
    ("sleep", {"seconds": 0.01}),
    ("activate_window", {"window_name": "A"}),
    ("close_window", {"window_name": "B", "strict": True}),
    ("change_wallpaper", {"path": f"{HOME}/a.png"}),
    ("execute_with_verification", {"command": ["true"], "verification": {"window_exists": "A"}}),
)
TABLE_RULES = [
    {"type": "sheet_name"},
    {"type": "sheet_data", "sheet_idx0": 0, "sheet_idx1": "EI0"},
    {"type": "sheet_print", "sheet_idx0": 0, "sheet_idx1": "EI0"},
    {"type": "sparkline", "sheet_idx0": 0, "sheet_idx1": "EI0"},
    {"type": "chart", "sheet_idx0": 0, "sheet_idx1": "EI0", "chart_props": ["type", "title"]},
    {"type": "style", "sheet_idx0": 0, "sheet_idx1": "EI0", "props": ["font_bold", "bgcolor"]},
    {"type": "freeze", "sheet_idx0": 0, "sheet_idx1": "EI0"},
    {"type": "zoom", "sheet_idx": 0, "method": "eq", "ref": 100},
    {"type": "data_validation", "sheet_idx": 0, "dv_props": []},
    {"type": "row_props", "sheet_idx0": 0, "sheet_idx1": "EI0", "props": ["hidden"]},
    {"type": "filter", "sheet_idx0": 0, "sheet_idx1": "EI0"},
    {"type": "pivot_table", "sheet_idx0": 0, "sheet_idx1": "EI0", "pivot_props": ["col_fields"]},
    {"type": "check_cell", "sheet_idx": 0, "coordinate": "B4", "props": {"value": {"method": "eq", "ref": 81}}},
]
TASKS: dict[str, Task] = {
    "documents": same("compare_docx_files", "a.docx"),
    "documents, loosely": same(
        "compare_docx_files", "a.docx", ignore_blanks=False, fuzzy_match=True, content_only=True
    ),
    "open documents": same("compare_docx_files", "a.odt"),
    "lines of a document": same("compare_docx_lines", "a.docx"),
    "tables of a document": same("compare_docx_tables", "a.docx"),
    "pictures of a document": same("compare_docx_images", "a.docx"),
    "spacing of a document": same("compare_line_spacing", "a.docx"),
    "a document's fonts": judged("compare_font_names", file("a.docx"), rule(font_name="Arial")),
    "a document's footer": judged("has_page_numbers_in_footers", file("a.docx")),
    "a document's breaks": judged("contains_page_break", file("a.docx"), rule(page_break_count=1)),
    "a document's colours": same("evaluate_colored_words_in_tables", "a.docx"),
    "a document's words": judged("fuzzy_place_math", file("a.docx"), rule(expected=["a", "b"])),
    **{f"a sheet: {rule['type']}": same("compare_table", "a.xlsx", rules=[rule]) for rule in TABLE_RULES},
    "a sheet's last row": judged(
        "literal_match",
        {"type": "content_from_vm_file", "path": f"{HOME}/a.xlsx", "file_type": "xlsx", "file_content": "last_row"},
        rule(expected=["a"]),
        type="list",
    ),
    "slides": same("compare_pptx_files", "a.pptx"),
    "slides, in other ways": same(
        "compare_pptx_files", "a.pptx", examine_run_count=False, examine_image_size=True, examine_modify_height=True
    ),
    "a slide's transition": judged("check_transition", file("a.pptx"), rule(slide_idx=0, transition_type="dissolve")),
    "slides' numbers": judged("check_page_number_colors", file("a.pptx"), rule(color="red")),
    "slides' filling": judged(
        "evaluate_presentation_fill_to_rgb_distance",
        file("a.pptx"),
        rule(rgb=[0, 0, 255], original_rgb=[255, 255, 255]),
    ),
    "a slide's background": judged(
        "compare_images",
        {"type": "background_image_in_slide", "ppt_file_path": f"{HOME}/a.pptx", "slide_index": 0, "dest": "b.png"},
        file("a.png", GOOD),
    ),
    "a slide's sound": judged(
        "compare_audios",
        {"type": "audio_in_slide", "ppt_file_path": f"{HOME}/a.pptx", "slide_index": 0, "dest": "b.mp3"},
        file("a.mp3", GOOD),
    ),
    "pictures": same("compare_images", "a.png"),
    "pictures of another kind": same("check_structure_sim", "a.jpg"),
    "moving pictures": same("check_structure_sim_resized", "a.gif"),
    "a palette": same("check_palette_and_structure_sim", "palette.png"),
    "a picture's size": judged("check_image_size", file("a.png"), rule(height=400, width=640, ignore_transparent=True)),
    "a picture's triangle": judged("check_triangle_position", file("a.png")),
    "a picture's background": same("check_green_background", "a.png"),
    "a wallpaper": judged("compare_images", {"type": "vm_wallpaper", "dest": "w.png"}, file("a.png", GOOD)),
    "printed pages": same("compare_pdfs", "a.pdf"),
    "pictures of pages": same("compare_pdf_images", "a.pdf"),
    "pages": judged("check_pdf_pages", file("a.pdf"), rule(relation="eq", ref_value=1)),
    "an archive": same("compare_archive", "a.zip", file_type="text"),
    "an archive of pages": same("compare_archive", "a.zip", file_type="pdf"),
    "a packed folder": same("compare_zip_files", "a.zip"),
    "a book": same("compare_epub", "a.epub"),
    "a database": judged("run_sqlite3", file("History"), rule(sql="SELECT count(*) FROM urls")),
    "a browser's history": judged(
        "check_history_deleted", {"type": "history", "dest": "h.sqlite"}, rule(type="keywords", keywords=["youtube"])
    ),
    "a browser's cookies": judged(
        "is_cookie_deleted", {"type": "cookie_data", "dest": "c"}, rule(type="domains", domains=[".amazon.com"])
    ),
    "a browser's bookmarks": judged(
        "is_expected_bookmarks", {"type": "bookmarks"}, rule(type="bookmark_bar_folders_names", names=["Favorites"])
    ),
    "a browser's settings": judged("exact_match", {"type": "enable_do_not_track"}, rule(expected="true")),
    "a browser's engine": judged("match_in_list", {"type": "default_search_engine"}, rule(expected=["Bing"])),
    "a browser's fonts": judged("check_font_size", {"type": "chrome_font_size"}, rule(type="range", min=16, max=99)),
    "a browser's colours": judged("exact_match", {"type": "chrome_color_scheme"}, rule(expected="dark")),
    "a browser's experiments": judged(
        "check_enabled_experiments", {"type": "enabled_experiments"}, rule(type="names", names=["a"])
    ),
    "a browser's extensions": judged(
        "is_in_list", {"type": "find_unpacked_extension_path"}, rule(expected=f"{HOME}/a")
    ),
    "a browser's tabs": judged(
        "is_expected_tabs", {"type": "open_tabs_info"}, rule(type="url", urls=["https://a.org/"])
    ),
    "a browser's tab": judged(
        "is_expected_active_tab", {"type": "active_tab_info"}, rule(type="url", url="https://a.org/")
    ),
    "a browser's own colours": judged("exact_match", {"type": "chrome_appearance_mode_ui"}, rule(expected="dark")),
    "an address in the tree": judged(
        "is_expected_url_pattern_match",
        {"type": "active_url_from_accessTree", "goto_prefix": "https://www."},
        rule(expected=["github"]),
    ),
    "a tree": judged(
        "check_accessibility_tree",
        {"type": "accessibility_tree"},
        {
            "type": "rule",
            "rules": [{"selectors": ['frame[name="New Tab"] entry'], "text": "github.com/a", "exact": False}],
        },
    ),
    "a tree's panel": judged("check_left_panel", {"type": "accessibility_tree"}),
    "a terminal": judged("check_include_exclude", {"type": "vm_terminal_output"}, rule(include=["$"], exclude=["x"])),
    "what is said": judged("exact_match", said(), rule(expected="1\n")),
    "what is said of the time": judged("is_utc_0", said("timedatectl")),
    "what is said of programs": judged("check_gnome_favorite_apps", said("gsettings"), rule(expected=["a.desktop"])),
    "what is wrong": judged("exact_match", {"type": "vm_command_error", "command": "x"}, rule(expected="")),
    "a folder": judged("check_moved_jpgs", {"type": "list_directory", "path": HOME}, rule(expected=["a.jpg"])),
    "shortcuts": judged(
        "is_shortcut_on_desktop",
        {"type": "shortcuts_on_desktop"},
        rule(type="name", name="Play Puzzle Game 2048"),
    ),
    "windows": judged(
        "is_vlc_fullscreen", {"type": "vm_window_size", "app_class_name": "vlc"}, {"type": "vm_screen_size"}
    ),
    "what is played": judged(
        "is_vlc_playing", {"type": "vlc_playing_info", "dest": "s.xml"}, rule(type="file_name", file_name="a.mp4")
    ),
    "a player's settings": judged(
        "check_qt_slider_colours", {"type": "vlc_config", "dest": "vlcrc"}, rule(type="blackish")
    ),
    "a player's other settings": judged(
        "check_play_and_exit", {"type": "vlc_config", "dest": "vlcrc"}, rule(expected_play_and_exit=1)
    ),
    "a player of choice": judged("check_include_exclude", {"type": "default_video_player"}, rule(include=["vlc"])),
    "sounds": same("compare_audios", "a.wav"),
    "a sound's tags": judged("check_mp3_meta", file("a.mp3"), rule(title={"method": "eq", "ref": "Missing You"})),
    "films": same("compare_videos", "a.avi"),
    "an editor's settings": judged(
        "check_json_settings", file("settings.json"), rule(expected={"editor.wordWrapColumn": 50})
    ),
    "an editor's keys": judged("check_json_keybindings", file("keybindings.json"), rule(expected={"key": "ctrl+f"})),
    "JSON": judged(
        "check_json",
        file("settings.json"),
        rule(expect=[{"key": ["editor.wordWrapColumn"], "method": "eq", "ref": 50}]),
    ),
    "YAML": judged(
        "check_json", file("a.yaml"), rule(expect=[{"key": ["a", "c"], "method": "eq", "ref": "text"}]), is_yaml=True
    ),
    "a picture's settings": judged(
        "check_config_status",
        {"type": "gimp_config_file", "file_name": "gimprc", "dest": "gimprc"},
        rule(key="undo-levels", value="100"),
    ),
    "an office's settings": judged(
        "find_default_font", file("registrymodifications.xcu"), rule(font_name="Times New Roman")
    ),
    "an office's language": judged("check_libre_locale", file("registrymodifications.xcu"), rule(locale_set=["en-US"])),
    "an office's screens": judged("check_presenter_console_disable", file("registrymodifications.xcu")),
    "mail": same("check_thunderbird_folder", "a.mbox"),
    "mail's settings": judged(
        "check_thunderbird_prefs",
        file("prefs.js"),
        rule(expect={"extensions.activeThemeID": {"method": "re", "ref": "dark"}}),
    ),
    "mail's filters": judged(
        "check_thunderbird_filter", file("msgFilterRules.dat"), rule(expect=[{"enabled": "yes", "action": "Forward"}])
    ),
    "records": same("compare_csv", "a.csv"),
    "records of one kind": judged("check_csv", file("a.csv"), rule(expect=[{"name": "Ada"}])),
    "lines": judged("check_list", file("a.txt"), rule(expect=["o.e", "^t"], unexpect=["x+$"])),
    "texts": same("compare_text_file", "a.txt", ignore_blanks=True, ignore_case=True),
    "the difference of texts": same("diff_text_file", "a.txt"),
    "pages of the web": same("compare_htmls", "a.html"),
    "a page's background": judged("check_html_background_image", file("a.html"), rule(value="a.png")),
    "programs": judged("check_python_file_by_test_suite", file("a.py"), file("a.py", GOOD), test_function_name="add"),
    "what setup said": {
        "config": SETUP,
        "evaluator": {
            "func": ["check_list", "exact_match"],
            "conj": "or",
            "result": [{"type": "cache_file", "path": "said.txt"}, said()],
            "expected": [rule(expect=["1"]), rule(expected="1\n")],
            "postconfig": steps(("execute", {"command": ["pyautogui", "ctrl+s"]}), ("sleep", {"seconds": 0.01})),
        },
    },
    "what cannot be done": {"config": SETUP[:2], "evaluator": {"func": "infeasible"}},
}
