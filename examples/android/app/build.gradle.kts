plugins {
    id("com.android.application") version "9.4.1" // brings Kotlin
}

android {
    namespace = "org.bertzoo.sample"
    compileSdk = 36
    defaultConfig {
        applicationId = "org.bertzoo.sample"
        minSdk = 26
        targetSdk = 36
        versionCode = 1
        versionName = "1.0"
    }
    androidResources {
        noCompress += "tflite" // both runtimes map the file from the package
    }
}

dependencies {
    implementation("com.google.ai.edge.litert:litert:2.3.0")
    implementation("com.google.mediapipe:tasks-text:1.0.0")
    testImplementation("junit:junit:4.13.2")
    testImplementation("org.json:json:20250517") // on a phone, Android has these classes
}

tasks.withType<Test>().configureEach {
    inputs.dir("src/main/assets") // a new file runs the tests again
}
